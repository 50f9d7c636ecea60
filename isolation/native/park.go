package native

// parkCode is a function in machine code, for guest/kernel.py (part): clone3(2)
// with its two arguments, which returns in the new process and not in the
// caller. The caller sleeps for ever, and uses nothing but registers and this
// page to do so: its memory and its stack are the new process's from then on.
//
// An architecture without an entry does it by CLONE_VFORK: the same, but the
// sleeper counts in the load average.
func parkCode(arch string) []byte {
	if arch != "amd64" {
		return nil
	}
	return []byte{
		0xb8, 0xb3, 0x01, 0x00, 0x00, //       mov  eax, 435 (clone3)
		0x0f, 0x05, //                         syscall
		0x48, 0x85, 0xc0, //                   test rax, rax
		0x7e, 0x09, //                         jle  back: the new process, or an error
		0xb8, 0x22, 0x00, 0x00, 0x00, // park: mov  eax, 34 (pause)
		0x0f, 0x05, //                         syscall
		0xeb, 0xf7, //                         jmp  park
		0xc3, //                         back: ret
	}
}
