//go:build linux

package pidfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FromFile takes over a received descriptor; f is closed in any case.
func FromFile(f *os.File) (*File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take over pidfd: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return From(fd)
}

// Kill sends SIGKILL. A process that has ended already is no error.
func (f *File) Kill() error {
	if err := f.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop sends SIGSTOP.
func (f *File) Stop() error { return f.Signal(unix.SIGSTOP) }

// Ended tells without blocking whether the process has ended.
func (f *File) Ended() (bool, error) {
	var ended bool
	err := f.control(func(fd int) error {
		var err error
		ended, err = readable(fd)
		return err
	})
	return ended, err
}
