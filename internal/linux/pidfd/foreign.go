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

// State is the process's, as /proc/PID/stat has it: R, S, D, T, Z and others; X
// once it has been reaped.
func (f *File) State() (byte, error) {
	fields, err := f.stat()
	if err != nil || fields == nil {
		return 'X', err
	}
	return fields[0][0], nil
}

// Place of a process's flags in its stat, counted as exitField is, and the one that
// a process has from the beginning of its end (PF_EXITING, linux/sched.h).
const (
	flagsField = 9 - 3
	exiting    = 0x4
)

// Dying tells whether the process has begun to end, for whatever reason.
func (f *File) Dying() (bool, error) {
	fields, err := f.stat()
	if err != nil || fields == nil {
		return err == nil, err
	}
	if len(fields) <= flagsField {
		return false, fmt.Errorf("read state of process: %d fields", len(fields))
	}
	flags, err := strconv.ParseUint(string(fields[flagsField]), 10, 32)
	return flags&exiting != 0, err
}

// stat is /proc/PID/stat from the state on; nil once the process was reaped.
func (f *File) stat() (fields [][]byte, err error) {
	err = f.control(func(fd int) error {
		pid, err := pidOf(fd)
		if err != nil || pid <= 0 {
			return err
		}
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return err
		}
		fields = bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
		if len(fields) == 0 {
			return fmt.Errorf("read state of process: %q", line)
		}
		// A reaped process's number may be another's by now.
		if pid, err = pidOf(fd); pid <= 0 {
			fields = nil
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	return fields, err
}

// pidOf reads the number that a pidfd stands for, -1 once it has been reaped
// (pidfd_open(2)).
func pidOf(fd int) (int, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, fmt.Errorf("read pid of pidfd: %w", err)
	}
	_, rest, ok := bytes.Cut(data, []byte("\nPid:\t"))
	number, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(number))
	if !ok || err != nil {
		return 0, fmt.Errorf("read pid of pidfd: %q", data)
	}
	return pid, nil
}

// exitField is the place of exit_code in /proc/PID/stat, counted from the field
// after the command's name (proc_pid_stat(5): 52, the state being the 3rd).
const exitField = 52 - 3

// ReadExit tells how a process ended that is not the caller's child: from its
// open /proc/PID/stat, as long as its parent leaves it a zombie. Then it is
// os.ErrProcessDone. The file shows it to those with CAP_SYS_PTRACE over the
// process.
func ReadExit(stat int) (Exit, error) {
	var buf [1024]byte
	n, err := unix.Pread(stat, buf[:], 0)
	if errors.Is(err, unix.ESRCH) {
		return Exit{}, os.ErrProcessDone
	}
	if err != nil {
		return Exit{}, fmt.Errorf("read exit of process: %w", err)
	}
	// The name is the process's own to choose and may hold anything.
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if len(fields) <= exitField {
		return Exit{}, fmt.Errorf("read exit of process: %d fields", len(fields))
	}
	if state := string(fields[0]); state != "Z" {
		return Exit{}, fmt.Errorf("read exit of process: it is in state %s", state)
	}
	status, err := strconv.ParseUint(string(fields[exitField]), 10, 32)
	if err != nil {
		return Exit{}, fmt.Errorf("read exit of process: %w", err)
	}
	w := unix.WaitStatus(status) // as wait(2) has it
	if w.Signaled() {
		return Exit{Code: -1, Signal: w.Signal(), Core: w.CoreDump()}, nil
	}
	return Exit{Code: w.ExitStatus()}, nil
}
