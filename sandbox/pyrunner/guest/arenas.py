"""Where the zygote's objects and the interpreter's text lie: in large pages.

A fork copies the entry of each page that its parent has, and an exit takes each
one down: for three thousand small pages that is a good part of a short run. A
large page (Documentation/admin-guide/mm/transhuge.rst) is one entry, or, once a
part of it was written, entries that the kernel handles together. Only whole,
aligned pieces of two megabytes can become one, and CPython puts its arenas
wherever mmap(2) finds room, between libraries. So it is given an allocator that
puts them side by side. Text is not copied at all, but mapped anew by each child,
sixteen pages at a time, as it comes to run it.

Where any of this cannot be had, memory stays as it is."""

import ctypes
import mmap
import os

_SIZE = 64 << 20  # for all that the zygote allocates; what is left is given back
_HUGE = 2 << 20
# linux/mman.h, asm-generic/mman-common.h
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_MADV_COLLAPSE = 25  # Linux 6.1

# struct PyObjectArenaAllocator's functions, in machine code, since no Python can
# run inside them. Their context is _State. What does not fit goes to the
# interpreter's own functions, as does all that a child allocates.
_CODE = {"x86_64": (
    # alloc(state, size)
    b"\x48\x8b\x07"      # mov rax, [rdi]        state.next
    b"\x48\x8d\x0c\x30"  # lea rcx, [rax+rsi]
    b"\x48\x3b\x4f\x08"  # cmp rcx, [rdi+8]      state.end
    b"\x77\x04"          # ja  1f
    b"\x48\x89\x0f"      # mov [rdi], rcx
    b"\xc3"              # ret
    b"\x48\x89\xf8"      # 1: mov rax, rdi
    b"\x48\x8b\x78\x10"  # mov rdi, [rax+16]     state.ctx
    b"\xff\x60\x18",     # jmp [rax+24]          state.alloc
    # free(state, address, size)
    b"\x48\x3b\x77\x28"  # cmp rsi, [rdi+40]     state.base
    b"\x72\x06"          # jb  1f
    b"\x48\x3b\x77\x08"  # cmp rsi, [rdi+8]      state.end
    b"\x72\x0a"          # jb  2f
    b"\x48\x89\xf8"      # 1: mov rax, rdi
    b"\x48\x8b\x78\x10"  # mov rdi, [rax+16]     state.ctx
    b"\xff\x60\x20"      # jmp [rax+32]          state.free
    b"\x48\x8d\x04\x16"  # 2: lea rax, [rsi+rdx]
    b"\x48\x3b\x07"      # cmp rax, [rdi]        the last one?
    b"\x75\x03"          # jne 3f
    b"\x48\x89\x37"      # mov [rdi], rsi
    b"\xc3",             # 3: ret
)}


class _State(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("next", "end", "ctx", "alloc", "free", "base")]


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "alloc", "free")]


_libc = ctypes.PyDLL(None, use_errno=True)
_held = []  # what must live as long as the interpreter, whatever becomes of this module


def gather():
    """From now on arenas lie side by side."""
    code = _CODE.get(os.uname().machine)
    if code is None or _held:
        return
    base = _room(_SIZE)
    if base is None:
        return
    place = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place.write(b"".join(code))
    address = ctypes.addressof(ctypes.c_char.from_buffer(place))
    if _libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return
    own = _Allocator()
    ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(own))
    state = _State(base, base + _SIZE, own.ctx or 0, own.alloc, own.free, base)
    ours = _Allocator(ctypes.addressof(state), address, address + len(code[0]))
    _held.extend((place, state))
    for thing in _held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(ours))


def _room(size):
    """New memory of that many bytes that begins with a large page; None when
    there is none."""
    map_memory = _libc.mmap
    map_memory.restype = ctypes.c_void_p
    map_memory.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    start = map_memory(None, size + _HUGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start in (None, ctypes.c_void_p(-1).value):
        return None
    base = (start + _HUGE - 1) // _HUGE * _HUGE
    _unmap(start, base)
    _unmap(base + size, start + size + _HUGE)
    return base


def settle():
    """Gives back what was not needed, and asks for large pages for the rest. To be
    called when no more is allocated but by children."""
    if _held:
        state = _held[1]
        end = (state.next + _HUGE - 1) // _HUGE * _HUGE
        _unmap(end, state.end)
        state.end = end
    for start, end in _own_memory():
        if not _collapse(start, end):
            return  # an older kernel, or no such memory now
    _move_text()


def _collapse(start, end):
    for address in range((start + _HUGE - 1) // _HUGE * _HUGE, end - _HUGE + 1, _HUGE):
        if _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE) != 0:
            return False
    return True


def _move_text():
    """Puts a copy of the interpreter's text in its place, as far as it fills
    large pages. What else of the file lies in these, its constants, comes to be
    executable with it."""
    start, end = _text()
    start, end = (start + _HUGE - 1) // _HUGE * _HUGE, end // _HUGE * _HUGE
    if end <= start:
        return
    size = end - start
    room = _room(size)
    if room is None:
        return
    ctypes.memmove(room, start, size)
    move = _libc.mremap
    move.restype = ctypes.c_void_p
    move.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    # The last call is one: there is no moment without text to return to.
    if (not _collapse(room, room + size)
            or _libc.mprotect(ctypes.c_void_p(room), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC) != 0
            or move(room, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, start) != start):
        _unmap(room, room + size)


def _text():
    """The piece of address space that the file with the interpreter's code fills
    with what is never written."""
    inside = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
    pieces = []
    with open("/proc/self/maps") as maps:
        for fields in map(str.split, maps):
            start, end = (int(n, 16) for n in fields[0].split("-"))
            if len(fields) < 6 or fields[1][1] == "w":
                continue
            if pieces and pieces[-1][1:] == [start, fields[5]]:
                pieces[-1][1] = end
            else:
                pieces.append([start, end, fields[5]])
    for start, end, _ in pieces:
        if start <= inside < end:
            return start, end
    return 0, 0


def _unmap(start, end):
    if end > start:
        _libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(end - start))


def _own_memory():
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    for fields in lines:
        if fields[1] == "rw-p" and (len(fields) == 5 or fields[5] == "[heap]"):
            start, end = fields[0].split("-")
            yield int(start, 16), int(end, 16)
