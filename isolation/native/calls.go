package native

// callsCode is a function in machine code, for guest/kernel.py (Sequence): it
// makes system calls one after another. Its argument is the first entry, of nine
// words each: number, six arguments, what comes after, result. It returns the
// entry where it ended: one with a negative number, or one whose call failed, with
// the result in it.
//
// What comes after is 3 where a call that returns 0 may fail. Else it matters to
// a call that returns twice. The new process goes on. Its caller sleeps for ever
// where that is 1; else it notes the result and goes on at the entry with that
// address. The sleeper uses nothing but registers and this page: its memory and
// its stack are the new process's from then on. So what comes after is read
// before the call.
//
// An architecture without an entry makes the calls from Python, and has its
// sleeper by CLONE_VFORK: the same, but slower, and counted in the load average.
func callsCode(arch string) []byte {
	if arch != "amd64" {
		return nil
	}
	return []byte{
		0x53,       //                         push rbx
		0x41, 0x54, //                         push r12
		0x48, 0x89, 0xfb, //                   mov  rbx, rdi (entry)
		0x48, 0x8b, 0x03, //             next: mov  rax, [rbx]
		0x48, 0x85, 0xc0, //                   test rax, rax
		0x78, 0x4f, //                         js   done
		0x4c, 0x8b, 0x63, 0x38, //             mov  r12, [rbx+56] (what comes after)
		0x48, 0x8b, 0x7b, 0x08, //             mov  rdi, [rbx+8]
		0x48, 0x8b, 0x73, 0x10, //             mov  rsi, [rbx+16]
		0x48, 0x8b, 0x53, 0x18, //             mov  rdx, [rbx+24]
		0x4c, 0x8b, 0x53, 0x20, //             mov  r10, [rbx+32]
		0x4c, 0x8b, 0x43, 0x28, //             mov  r8, [rbx+40]
		0x4c, 0x8b, 0x4b, 0x30, //             mov  r9, [rbx+48]
		0x0f, 0x05, //                         syscall
		0x48, 0x85, 0xc0, //                   test rax, rax
		0x78, 0x1c, //                         js   failed
		0x74, 0x20, //                         jz   step: the new process, or no matter
		0x49, 0x83, 0xfc, 0x01, //             cmp  r12, 1
		0x72, 0x1a, //                         jb   step
		0x74, 0x09, //                         je   park
		0x48, 0x89, 0x43, 0x40, //             mov  [rbx+64], rax (result)
		0x4c, 0x89, 0xe3, //                   mov  rbx, r12
		0xeb, 0xc2, //                         jmp  next
		0xb8, 0x22, 0x00, 0x00, 0x00, // park: mov  eax, 34 (pause)
		0x0f, 0x05, //                         syscall
		0xeb, 0xf7, //                         jmp  park
		0x49, 0x83, 0xfc, 0x03, //     failed: cmp  r12, 3
		0x75, 0x06, //                         jne  out
		0x48, 0x83, 0xc3, 0x48, //       step: add  rbx, 72
		0xeb, 0xad, //                         jmp  next
		0x48, 0x89, 0x43, 0x40, //        out: mov  [rbx+64], rax
		0x48, 0x89, 0xd8, //             done: mov  rax, rbx
		0x41, 0x5c, //                         pop  r12
		0x5b, //                               pop  rbx
		0xc3, //                               ret
	}
}
