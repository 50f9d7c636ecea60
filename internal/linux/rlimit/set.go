//go:build linux

package rlimit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Infinity is no limit at all (RLIM_INFINITY).
const Infinity = unix.RLIM_INFINITY

// Set limits another process, which must be held on to so that its number stays
// its own. A lower hard limit that it has already stays: raising it takes a
// capability that daemons in containers do not have. Setting it needs
// CAP_SYS_RESOURCE over the process's user namespace (prlimit(2)).
func Set(pid, number int, soft, hard uint64) error {
	if pid <= 0 { // 0 would be the daemon itself
		return fmt.Errorf("limit process: %d is no process", pid)
	}
	name, ok := Name(number)
	if !ok {
		return fmt.Errorf("limit process: no limit has the number %d", number)
	}
	want := unix.Rlimit{Cur: soft, Max: hard}
	err := unix.Prlimit(pid, number, &want, nil)
	if !errors.Is(err, unix.EPERM) {
		return named(err, name)
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, number, nil, &old); err != nil {
		return named(err, name)
	}
	if want = (unix.Rlimit{Cur: min(soft, old.Max), Max: min(hard, old.Max)}); want.Max < old.Max {
		return named(err, name) // it was not for raising it
	}
	return named(unix.Prlimit(pid, number, &want, nil), name)
}

func named(err error, name string) error {
	if err != nil {
		return fmt.Errorf("set limit %s: %w", name, err)
	}
	return nil
}
