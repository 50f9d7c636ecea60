package seccomp

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestSupervisorSpec_RefusesWhatSupervisorDoes: the two outer filters name the
// same calls.
func TestSupervisorSpec_RefusesWhatSupervisorDoes(t *testing.T) {
	s := SupervisorSpec()
	if s.DefaultAction != specs.ActAllow {
		t.Errorf("it %s by default", s.DefaultAction)
	}
	var named []string
	flags := uint64(0)
	for _, rule := range s.Syscalls {
		if rule.Action != specs.ActErrno || rule.ErrnoRet == nil {
			t.Errorf("%v: %s without an errno", rule.Names, rule.Action)
		}
		named = append(named, rule.Names...)
		for _, arg := range rule.Args {
			if slices.Contains(rule.Names, "clone") {
				flags |= arg.Value
			}
		}
	}
	for _, name := range append(slices.Clone(hostCalls), "clone3", "clone", "socket", "socketpair") {
		if !slices.Contains(named, name) {
			t.Errorf("%s is not named", name)
		}
	}
	if flags != cloneNamespaces {
		t.Errorf("clone is refused with %#x, want %#x", flags, uint64(cloneNamespaces))
	}
}
