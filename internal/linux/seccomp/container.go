package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// SupervisorSpec is the outer filter of a supervisor in the words of an OCI spec,
// for runtimes that build filters themselves. It is Supervisor without the check
// of personality(2): their rules cannot say "none of two values". The program's
// own filter, which comes on top, has it.
func SupervisorSpec() *specs.LinuxSeccomp {
	deny, absent, family := uint(unix.EPERM), uint(unix.ENOSYS), uint(unix.EAFNOSUPPORT)
	rule := func(number *uint, name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: number, Args: args}
	}
	rules := []specs.LinuxSyscall{
		{Names: slices.Clone(hostCalls), Action: specs.ActErrno, ErrnoRet: &deny},
		rule(&absent, "clone3"),
	}
	for bit := uint64(1); bit <= cloneNamespaces; bit <<= 1 {
		if bit&cloneNamespaces != 0 {
			rules = append(rules, rule(&deny, "clone", specs.LinuxSeccompArg{
				Index: 0, Value: bit, ValueTwo: bit, Op: specs.OpMaskedEqual,
			}))
		}
	}
	for _, call := range []string{"socket", "socketpair"} {
		for number := range uint64(afInet6) {
			if number != afUnix && number != afInet {
				rules = append(rules, rule(&family, call, specs.LinuxSeccompArg{Index: 0, Value: number, Op: specs.OpEqualTo}))
			}
		}
		rules = append(rules, rule(&family, call, specs.LinuxSeccompArg{Index: 0, Value: afInet6, Op: specs.OpGreaterThan}))
	}
	return &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: rules}
}
