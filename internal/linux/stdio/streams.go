//go:build linux

package stdio

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Source is where something was heard.
type Source int

// The sources. Report, Stdout and Stderr are the process's to write.
const (
	Ended  Source = iota - 2 // the process has ended, and all it wrote was heard
	None                     // nothing was heard in time
	Status                   // 0: what can be read are indexes
	Stdout
	Stderr
	Report
)

// sources is how many can be read. The poll tells of two things more: that the
// process can be told more, and that it has ended.
const (
	sources    = 4
	toldMore   = Source(sources)
	processEnd = toldMore + 1
)

// Streams are the daemon's ends.
type Streams struct {
	poll *os.File // an epoll instance, itself in the runtime's poller
	raw  syscall.RawConn

	mu      sync.Mutex
	closed  bool
	pollFD  int
	stdin   int
	tell    int
	fds     [sources]int
	quiet   [sources]bool // told of once, and not to be told of again before it is read
	drained [sources]bool // nothing more is there now
	atEnd   [sources]bool // nor ever will be
	untold  []byte        // what the pipe had no room for
	process process
	ended   bool
}

// none is a descriptor that is closed.
const none = -1

// Open makes the streams. far are the ends for the process, in the order
// status, stdin, stdout, stderr, report, tell; they are the caller's to close.
func Open() (s *Streams, far []int, err error) {
	s = &Streams{stdin: none, tell: none, fds: [sources]int{none, none, none, none}, process: process{0, none, none}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(), CloseAll(far))
			s, far = nil, nil
		}
	}()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return s, far, fmt.Errorf("make epoll: %w", err)
	}
	// The runtime's poller takes only what does not block.
	if err := unix.SetNonblock(poll, true); err != nil {
		return s, far, errors.Join(fmt.Errorf("make epoll: %w", err), unix.Close(poll))
	}
	s.pollFD, s.poll = poll, os.NewFile(uintptr(poll), "epoll")
	if s.raw, err = s.poll.SyscallConn(); err != nil {
		return s, far, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, far, fmt.Errorf("make status socket: %w", err)
	}
	s.fds[Status], far = pair[0], append(far, pair[1])
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return s, far, fmt.Errorf("ask for credentials: %w", err)
	}
	if s.stdin, err = unix.MemfdCreate("stdin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return s, far, fmt.Errorf("make standard input: %w", err)
	}
	shared, err := unix.FcntlInt(uintptr(s.stdin), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return s, far, fmt.Errorf("share standard input: %w", err)
	}
	far = append(far, shared)
	for _, source := range []Source{Stdout, Stderr, Report} {
		r, w, err := pipe()
		if err != nil {
			return s, far, err
		}
		s.fds[source], far = r, append(far, w)
	}
	r, w, err := pipe()
	if err != nil {
		return s, far, err
	}
	s.tell, far = w, append(far, r)
	return s, far, s.arm(far)
}

func pipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return none, none, fmt.Errorf("make pipe: %w", err)
	}
	return fds[0], fds[1], nil
}

// arm makes the near ends ready to be heard.
func (s *Streams) arm(far []int) error {
	for _, fd := range append(s.fds[:], s.tell) {
		// The only flag that they have (F_SETFL leaves the access mode).
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
			return fmt.Errorf("make pipe: %w", err)
		}
	}
	// Their names under /proc can be opened by the process, which is not their
	// owner, and nothing read back from them.
	for _, fd := range far[2:4] {
		if err := unix.Fchmod(fd, 0o622); err != nil {
			return fmt.Errorf("open output to its writer: %w", err)
		}
	}
	for source, fd := range s.fds {
		if err := s.watch(unix.EPOLL_CTL_ADD, fd, Source(source), unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
			return err
		}
	}
	return s.watch(unix.EPOLL_CTL_ADD, s.tell, toldMore, unix.EPOLLONESHOT)
}

// watch has the poll tell of fd as what.
func (s *Streams) watch(op, fd int, what Source, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(what)} //nolint:gosec // a small number
	if err := unix.EpollCtl(s.pollFD, op, fd, &event); err != nil {
		return fmt.Errorf("watch stream %d: %w", what, err)
	}
	return nil
}

// Input is what the process reads as its standard input: once, before it reads.
// It cannot be changed afterwards (F_ADD_SEALS, fcntl(2)).
func (s *Streams) Input(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Not by the file's position, which is the process's too.
	for at := 0; at < len(text); {
		n, err := unix.Pwrite(s.stdin, []byte(text[at:]), int64(at))
		if err != nil {
			return fmt.Errorf("fill standard input: %w", err)
		}
		at += n
	}
	const all = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(s.stdin), unix.F_ADD_SEALS, all); err != nil {
		return fmt.Errorf("seal standard input: %w", err)
	}
	return nil
}

// Tell writes to the process. What its pipe has no room for is written while
// the caller listens. A process that does not read any more is not told.
func (s *Streams) Tell(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := len(s.untold) > 0
	s.untold = append(s.untold, data...)
	if more || s.closed {
		return nil
	}
	return s.tellMore()
}

// tellMore writes what the pipe takes, and asks to be told when it takes more.
func (s *Streams) tellMore() error {
	for len(s.untold) > 0 {
		n, err := unix.Write(s.tell, s.untold)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return s.watch(unix.EPOLL_CTL_MOD, s.tell, toldMore, unix.EPOLLOUT|unix.EPOLLONESHOT)
		case errors.Is(err, unix.EINTR):
		case err != nil: // nobody reads: the process has ended, or does not care
			s.untold = nil
		default:
			s.untold = s.untold[n:]
		}
	}
	s.untold = nil
	return nil
}

// Close closes all ends and ends a Listen.
func (s *Streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.poll != nil {
		err = s.poll.Close()
	}
	return errors.Join(err, CloseAll(append(s.fds[:], s.stdin, s.tell, s.process.pidfd, s.process.stat)))
}

// CloseAll closes descriptors, those that are open.
func CloseAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		if fd != none {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
