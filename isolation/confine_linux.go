package isolation

import (
	"fmt"

	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/linux/rlimit"
	"github.com/sandboxd/sandboxd/internal/linux/seccomp"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Confine says how an engine wants the program of a plan confined. The zero
// value is the strictest; an engine loosens what another layer of it holds.
type Confine struct {
	Arch         string // GOARCH of the guest
	Landlock     int    // ABI of the kernel, 0 for none
	ReadOnly     []string
	ReadWrite    []string
	Workspace    string
	SitePackages []string
	Sockets      bool // IPv4, IPv6 and Unix sockets: only in a network namespace of its own
	OwnIDs       bool // the supervisor may change to ProgramID
	OwnUID       bool // the program's host uid is this sandbox's alone, so RLIMIT_NPROC counts it alone
	NoCgroup     bool // RLIMIT_AS has to hold the memory limit
	Kill         pyrunner.KillScope
}

// guestCalls are the system calls that the guest makes by number, because libc
// has no function for them or only newer ones have.
func guestCalls() []string {
	return []string{
		"capset", "chdir", "clone3", "close", "close_range", "dup3", "fchownat", "getpid",
		"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
		"madvise", "mount", "mprotect", "openat", "ppoll", "prctl", "rt_sigaction", "setgroups",
		"sethostname", "setns", "setresgid", "setresuid", "setsid", "unshare", "write",
	}
}

// Numbers are the system call numbers that the guest needs.
func Numbers(arch string) (map[string]int, error) {
	return seccomp.Numbers(arch, guestCalls()...)
}

// Confinement makes the supervisor's configuration for a plan.
func (c Confine) Confinement(l sandbox.Limits) (pyrunner.Confinement, error) {
	numbers, err := Numbers(c.Arch)
	if err != nil {
		return pyrunner.Confinement{}, err
	}
	filter, err := seccomp.Program(c.Arch, seccomp.Profile{
		Name: "program", AllowProcesses: l.Processes > 0, AllowSockets: c.Sockets,
	})
	if err != nil {
		return pyrunner.Confinement{}, err
	}
	limits, err := c.Rlimits(l)
	if err != nil {
		return pyrunner.Confinement{}, err
	}
	out := pyrunner.Confinement{
		Numbers: numbers, Filter: filter, Rlimits: limits, Landlock: c.landlock(),
		Workspace: c.Workspace, SitePackages: c.SitePackages,
		ThreadStackBytes: ThreadStackBytes, Kill: c.Kill,
	}
	if c.OwnIDs {
		id := ProgramID
		out.UID, out.GID = &id, &id
	}
	return out, nil
}

// Rlimits are the program's. Where a cgroup holds the memory limit, RLIMIT_DATA
// only gives Python the chance to raise MemoryError before the kernel kills.
func (c Confine) Rlimits(l sandbox.Limits) ([]pyrunner.Rlimit, error) {
	memory := "data"
	if c.NoCgroup {
		memory = "as"
	}
	cpu := l.CPUMillis/1000 + 2 // the keeper's own account comes first; this holds without it
	values := []struct {
		name  string
		value int64
	}{
		{"cpu", cpu},
		{memory, l.MemoryBytes + l.Threads*ThreadStackBytes},
		{"nofile", l.OpenFiles},
		{"fsize", l.FileBytes},
		{"core", 0},
		{"stack", 8 << 20},
		{"memlock", 64 << 10},
		{"msgqueue", 0},
		{"sigpending", 1024},
	}
	if c.OwnUID {
		values = append(values, struct {
			name  string
			value int64
		}{"nproc", l.Threads + l.Processes})
	}
	var out []pyrunner.Rlimit
	for _, v := range values {
		number, ok := rlimit.Number(v.name)
		if !ok {
			return nil, fmt.Errorf("rlimit %q has no number", v.name)
		}
		out = append(out, pyrunner.Rlimit{int64(number), v.value, v.value})
	}
	return out, nil
}

func (c Confine) landlock() *pyrunner.Landlock {
	if c.Landlock == 0 {
		return nil
	}
	set := landlock.For(c.Landlock, c.ReadOnly, c.ReadWrite)
	out := &pyrunner.Landlock{
		ABI: set.ABI, HandledFS: set.HandledFS, HandledNet: set.HandledNet, Scoped: set.Scoped, FileMask: set.FileMask,
	}
	for _, r := range set.Rules {
		out.Rules = append(out.Rules, pyrunner.LandlockRule{Path: r.Path, Access: r.Access})
	}
	return out
}
