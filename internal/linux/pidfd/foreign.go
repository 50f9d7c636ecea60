//go:build linux

package pidfd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Foreign is a process that is not the caller's child. How it ended can be read
// as long as its parent leaves it a zombie.
type Foreign struct {
	*File
	stat *os.File
}

// OpenForeign holds on to the process pid; see Open for what the caller must
// know. It needs CAP_SYS_PTRACE over the process.
func OpenForeign(pid int) (*Foreign, error) {
	f, err := Open(pid)
	if err != nil {
		return nil, err
	}
	// An open file under /proc stays with its process, whoever gets the number.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open stat of %d: %w", pid, err), f.Close())
	}
	return &Foreign{f, os.NewFile(uintptr(fd), "stat")}, nil
}

// exitField is the place of exit_code in /proc/PID/stat, counted from the field
// after the command's name (proc_pid_stat(5): 52, the state being the 3rd).
const exitField = 52 - 3

// Exit tells how the ended process ended. The error is os.ErrProcessDone when
// its parent has reaped it already.
func (f *Foreign) Exit() (Exit, error) {
	var buf [1024]byte
	n, err := f.stat.ReadAt(buf[:], 0)
	if errors.Is(err, unix.ESRCH) {
		return Exit{}, os.ErrProcessDone
	}
	line := buf[:n]
	// The name is the process's own to choose and may hold anything.
	_, rest, ok := bytes.Cut(line[bytes.LastIndexByte(line, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) <= exitField {
		return Exit{}, fmt.Errorf("read exit of process: %w: %d fields", errors.Join(err, os.ErrInvalid), len(fields))
	}
	if state := string(fields[0]); state != "Z" {
		return Exit{}, fmt.Errorf("read exit of process: it is in state %s", state)
	}
	status, err := strconv.Atoi(string(fields[exitField]))
	if err != nil {
		return Exit{}, fmt.Errorf("read exit of process: %w", err)
	}
	// As wait(2) has it.
	if w := unix.WaitStatus(status); w.Signaled() { //nolint:gosec // a wait status
		return Exit{Code: -1, Signal: w.Signal(), Core: w.CoreDump()}, nil
	} else {
		return Exit{Code: w.ExitStatus()}, nil
	}
}

// Close lets go of the process and wakes a waiter.
func (f *Foreign) Close() error { return errors.Join(f.File.Close(), f.stat.Close()) }
