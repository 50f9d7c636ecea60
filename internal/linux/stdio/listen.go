//go:build linux

package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Listen waits until something can be heard and reads it into buf, once. With
// patience, streams that were heard already are listened to again only after that
// time, so that a process which writes little by little does not cost a wake-up
// for each piece; its end is heard at once all the same, and everything before it.
// None says that the time is up, Ended comes once everything was heard. io.EOF
// is for streams that are closed.
func (s *Streams) Listen(buf []byte, patience time.Duration) (from Source, n int, err error) {
	for {
		from, n, err := s.heard(buf)
		if from != None || err != nil {
			return from, n, err
		}
		if patience == 0 {
			if err := s.again(); err != nil {
				return None, 0, err
			}
		}
		late, err := s.wait(patience)
		if err != nil {
			return None, 0, err
		}
		if late {
			return None, 0, s.again()
		}
	}
}

// heard reads from a stream that has something, and writes what waits to be told.
func (s *Streams) heard(buf []byte) (Source, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return None, 0, io.EOF
	}
	for source := range s.fds {
		if !s.quiet[source] && !s.ended || s.atEnd[source] || s.drained[source] {
			continue
		}
		n, err := read(s.fds[source], buf)
		// Less than there was room for is all there is for now. Once the process
		// has ended nobody else writes, so it is all there will be.
		if short := n > 0 && n < len(buf); short {
			s.drained[source], s.atEnd[source] = true, s.ended
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			s.drained[source], s.atEnd[source] = true, s.ended
		case err != nil:
			return None, 0, fmt.Errorf("read stream %d: %w", source, err)
		case n == 0:
			s.atEnd[source] = true
		default:
			return Source(source), n, nil
		}
	}
	if s.ended {
		return Ended, 0, nil
	}
	return None, 0, nil
}

func read(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// again has the poll tell once more of the streams that were heard.
func (s *Streams) again() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return io.EOF
	}
	for source, quiet := range s.quiet {
		if !quiet || s.atEnd[source] {
			continue
		}
		s.quiet[source], s.drained[source] = false, false
		if err := s.watch(unix.EPOLL_CTL_MOD, s.fds[source], Source(source), unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for news, and tells whether none came within the patience.
func (s *Streams) wait(patience time.Duration) (late bool, err error) {
	var deadline time.Time
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	if err := s.poll.SetReadDeadline(deadline); err != nil {
		return false, io.EOF
	}
	var events [sources + 2]unix.EpollEvent
	var count int
	var pollErr error
	err = s.raw.Read(func(poll uintptr) bool {
		count, pollErr = unix.EpollWait(int(poll), events[:], 0)
		return count > 0 || pollErr != nil && !errors.Is(pollErr, unix.EINTR)
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return true, nil
	case err != nil: // closed
		return false, io.EOF
	case pollErr != nil:
		return false, fmt.Errorf("wait for streams: %w", pollErr)
	}
	return false, s.note(events[:count])
}

func (s *Streams) note(events []unix.EpollEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return io.EOF
	}
	for _, e := range events {
		what := Source(e.Fd)
		if what == processEnd {
			s.ended = true
			s.drained = [sources]bool{} // it may have written since
			if err := s.watch(unix.EPOLL_CTL_DEL, s.process.pidfd, processEnd, 0); err != nil {
				return err
			}
			continue
		}
		if what == toldMore {
			if err := s.tellMore(); err != nil {
				return err
			}
			continue
		}
		s.quiet[what], s.drained[what] = true, false
	}
	return nil
}
