//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ABI returns the kernel's Landlock version, 0 where Landlock is not built in
// (ENOSYS) or switched off at boot (EOPNOTSUPP); see landlock_create_ruleset(2).
func ABI() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return int(version), nil
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return 0, nil
	}
	return 0, fmt.Errorf("ask for the Landlock version: %w", errno)
}

// Restrict applies r to the calling thread and what it starts. It cannot be
// undone.
//
// Preconditions: the caller has locked its goroutine to the thread, and set
// no_new_privs or holds CAP_SYS_ADMIN.
func Restrict(r Ruleset) error {
	if r.ABI < 1 {
		return errors.New("restrict: ruleset for no Landlock")
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: r.HandledFS, Handled_access_net: r.HandledNet, Scoped: r.Scoped}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), attrBytes(r.ABI), 0)
	if errno != 0 {
		return fmt.Errorf("create ruleset: %w", errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	for i, rule := range r.Rules {
		if err := addRule(int(fd), rule, r.FileMask); err != nil {
			return fmt.Errorf("rule %d: %w", i, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict self: %w", errno)
	}
	return nil
}

// attrBytes is the size of struct landlock_ruleset_attr as the ABI knew it. Newer
// kernels take shorter ones; older kernels take longer ones only if zero.
func attrBytes(abi int) uintptr {
	switch {
	case abi < 4:
		return 8
	case abi < 6:
		return 16
	}
	return 24
}

func addRule(ruleset int, rule Rule, fileMask uint64) error {
	fd, err := unix.Open(rule.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", rule.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %s: %w", rule.Path, err)
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rule.Access, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		attr.Allowed_access &= fileMask
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add %s: %w", rule.Path, errno)
	}
	return nil
}
