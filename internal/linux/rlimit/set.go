//go:build linux

package rlimit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Infinity is no limit at all (RLIM_INFINITY).
const Infinity = unix.RLIM_INFINITY

// Set limits another process, which must be held on to so that its number stays
// its own. A lower hard limit that it has already stays: raising it takes a
// capability that daemons in containers do not have. Setting it needs
// CAP_SYS_RESOURCE over the process's user namespace (prlimit(2)).
func Set(pid, number int, soft, hard uint64) error {
	if pid <= 0 || pid == os.Getpid() {
		return errors.New("limit process: it is the daemon itself")
	}
	name, ok := Name(number)
	if !ok {
		return fmt.Errorf("limit process: no limit has the number %d", number)
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, number, nil, &old); err != nil {
		return fmt.Errorf("read limit %s: %w", name, err)
	}
	want := unix.Rlimit{Cur: min(soft, old.Max), Max: min(hard, old.Max)}
	if want == old {
		return nil
	}
	if err := unix.Prlimit(pid, number, &want, nil); err != nil {
		return fmt.Errorf("set limit %s: %w", name, err)
	}
	return nil
}
