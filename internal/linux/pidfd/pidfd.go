//go:build linux

package pidfd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// File is a process descriptor. Its methods may be called from several
// goroutines, but only one may wait.
type File struct {
	file   *os.File
	closed atomic.Bool
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit status, -1 when a signal ended the process.
	Code int
	// Signal ended the process; 0 when it exited.
	Signal unix.Signal
	// Core says that a core was dumped.
	Core bool
}

// Open returns a descriptor of the process pid. The caller must know that pid
// has not been reaped: its own child, or listed by a group that it then checks
// again. Errors are those of pidfd_open(2).
func Open(pid int) (*File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // PIDFD_NONBLOCK is from Linux 5.10
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open pidfd of %d: %w", pid, err)
	}
	return From(fd)
}

// From takes over a descriptor that came from clone3(2) or a socket. It is closed
// on errors.
func From(fd int) (*File, error) {
	unix.CloseOnExec(fd)
	// Only a non-blocking descriptor is given to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("take over pidfd: %w", err), unix.Close(fd))
	}
	return &File{file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Wait returns when the process has ended (a zombie counts) or ctx has; then the
// error is ctx's cause. Close during it is os.ErrClosed.
func (f *File) Wait(ctx context.Context) error {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for pidfd: %w", err)
	}
	if err := f.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for pidfd: %w", err)
	}
	// A deadline in the past wakes the poller.
	stop := context.AfterFunc(ctx, func() { _ = f.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		var ended bool
		ended, pollErr = readable(int(fd))
		return ended || pollErr != nil
	})
	switch {
	case err != nil && f.closed.Load(): // raw.Read's own error can't be compared
		return fmt.Errorf("wait for pidfd: %w", os.ErrClosed)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	}
	if err := errors.Join(err, pollErr); err != nil {
		return fmt.Errorf("wait for pidfd: %w", err)
	}
	return nil
}

// readable asks without blocking: a pidfd is readable when its process ended.
func readable(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// Signal sends sig to the process. os.ErrProcessDone says that it has ended.
func (f *File) Signal(sig unix.Signal) error {
	err := f.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("signal pidfd: %w", err)
	}
	return nil
}

// Reap collects the exit of an ended child (waitid(2) with P_PIDFD, Linux 5.4).
// It does not block: a running child is EAGAIN, somebody else's process ECHILD.
func (f *File) Reap() (Exit, error) {
	var exit Exit
	err := f.control(func(fd int) error {
		var err error
		exit, err = waitid(fd)
		return err
	})
	if err != nil {
		return Exit{}, fmt.Errorf("reap pidfd: %w", err)
	}
	return exit, nil
}

// Close lets go of the process and wakes a waiter.
func (f *File) Close() error {
	f.closed.Store(true)
	return f.file.Close()
}

func (f *File) control(do func(fd int) error) error {
	raw, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	return errors.Join(raw.Control(func(fd uintptr) { inner = do(int(fd)) }), inner)
}
