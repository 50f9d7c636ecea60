//go:build linux

package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
)

// process is held by its descriptor and by its stat file, which stays with it
// whoever gets its number.
type process struct{ pid, pidfd, stat int }

// Hello waits for the first message on the status socket. It returns its size
// and the process that the kernel says has sent it. io.EOF says that nobody is
// left who could send one.
func (s *Streams) Hello(buf []byte) (n, pid int, err error) {
	for heard := false; !heard; {
		if _, err := s.wait(0); err != nil {
			return 0, 0, err
		}
		s.mu.Lock()
		heard = s.quiet[Status]
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0, io.EOF
	}
	credentials := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, size, _, _, err := unix.Recvmsg(s.fds[Status], buf, credentials, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("read hello: %w", err)
	}
	if n == 0 {
		return 0, 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(credentials[:size])
	if err != nil || len(messages) != 1 {
		return n, 0, errors.Join(errors.New("read hello: the message names no sender"), err)
	}
	sender, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return n, 0, fmt.Errorf("read hello: %w", err)
	}
	return n, int(sender.Pid), nil
}

// Hold takes hold of the process whose streams these are. It must be alive, and
// wait for what it is told.
func (s *Streams) Hold(pid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open pidfd of %d: %w", pid, err)
	}
	s.process.pid, s.process.pidfd = pid, fd
	stat, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open stat of %d: %w", pid, err)
	}
	s.process.stat = stat
	return s.watch(unix.EPOLL_CTL_ADD, fd, processEnd, unix.EPOLLIN)
}

// PID is the number of the process that is held, 0 when none is.
func (s *Streams) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.pid
}

// MemoryBytes is the process's memory, what it shares counted in parts (PSS,
// proc_pid_smaps(5)). Reading it takes a walk through its pages.
func (s *Streams) MemoryBytes() (int64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	_, rest, ok := bytes.Cut(data, []byte("\nPss:"))
	fields := bytes.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, errors.New("read memory: no Pss")
	}
	kibibytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return kibibytes << 10, nil
}

// Kill ends the process. One that has ended already is no error.
func (s *Streams) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.process.pidfd == none {
		return nil
	}
	if err := unix.PidfdSendSignal(s.process.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process: %w", err)
	}
	return nil
}

// Exit tells how the process ended, as long as its parent leaves it a zombie;
// then it is os.ErrProcessDone.
func (s *Streams) Exit() (pidfd.Exit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return pidfd.Exit{}, os.ErrClosed
	}
	return pidfd.ReadExit(s.process.stat)
}
