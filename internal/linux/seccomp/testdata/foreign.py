"""Calls getpid by the 32-bit convention of amd64 (int 0x80)."""
import ctypes
import mmap

code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
print("alive", ctypes.CFUNCTYPE(ctypes.c_int)(address)())
