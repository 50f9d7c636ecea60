"""Installs the filter given as hexadecimal text, then runs a script under it."""
import ctypes
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
code = bytes.fromhex(sys.argv[1])
prog = Fprog(len(code) // 8, code)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(prog), 0, 0) == 0
with open(sys.argv[2], encoding="utf-8") as f:
    source = f.read()
sys.argv = sys.argv[2:]
exec(compile(source, sys.argv[0], "exec"), {"__name__": "__main__"})
