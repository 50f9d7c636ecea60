package seccomp

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf/arch"
)

// x32Bit marks the x32 calling convention in an amd64 system call number
// (arch/x86/include/uapi/asm/unistd.h: __X32_SYSCALL_BIT).
const x32Bit = 0x40000000

// table holds the system calls of one architecture.
type table struct {
	audit   uint32
	numbers map[string]int
	hasX32  bool
}

// lookup returns the table of a GOARCH-style architecture name.
func lookup(name string) (*table, error) {
	switch name {
	case "amd64":
		return &table{audit: uint32(arch.X86_64.ID), numbers: arch.X86_64.SyscallNames, hasX32: true}, nil
	case "arm64":
		return &table{audit: uint32(arch.AARCH64.ID), numbers: arch.AARCH64.SyscallNames}, nil
	}
	return nil, fmt.Errorf("architecture %q: no system call table (amd64 and arm64 only)", name)
}

// known says whether any supported architecture has the call. arm64 lacks the
// calls that newer ones replaced (open, fork, poll), so a name may be missing
// from one table; missing from both it is a typing error.
func known(name string) bool {
	_, amd64 := arch.X86_64.SyscallNames[name]
	_, arm64 := arch.AARCH64.SyscallNames[name]
	return amd64 || arm64
}

// Numbers returns the numbers of the named system calls on arch ("amd64" or
// "arm64"). A name that the architecture does not have is an error: the guest
// would otherwise call number zero.
func Numbers(arch string, names ...string) (map[string]int, error) {
	t, err := lookup(arch)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int, len(names))
	for _, name := range names {
		number, ok := t.numbers[name]
		if !ok {
			return nil, fmt.Errorf("architecture %s: no system call %q", arch, name)
		}
		out[name] = number
	}
	return out, nil
}
