//go:build linux

package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockFilterBytes is the size of struct sock_filter.
const sockFilterBytes = 8

// Install puts a filter from [Program] or [Supervisor] on every thread of the
// calling process, after setting no_new_privs. It cannot be undone. The filter
// must be for the running architecture: any other kills the process.
//
// Linux 3.17 (SECCOMP_FILTER_FLAG_TSYNC). Errors are those of seccomp(2).
func Install(filter []byte) error {
	count := len(filter) / sockFilterBytes
	if count == 0 || count > maxInstructions || len(filter)%sockFilterBytes != 0 {
		return fmt.Errorf("install filter: %d bytes is no program", len(filter))
	}
	code := make([]unix.SockFilter, count)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&code[0])), len(filter)), filter)
	prog := unix.SockFprog{Len: uint16(count), Filter: &code[0]}
	// no_new_privs belongs to the thread; TSYNC copies it to the others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	thread, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	if no != 0 {
		return fmt.Errorf("install filter: %w", no)
	}
	if thread != 0 {
		return errors.New("install filter: a thread has a filter of its own")
	}
	return nil
}
