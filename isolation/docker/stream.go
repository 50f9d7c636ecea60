package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
)

// stream is an attachment to a container: what is written goes to the supervisor's
// standard input, what is read comes from its standard output. What it says on
// standard error is kept for messages.
type stream struct {
	conn net.Conn
	r    io.Reader // buffered

	rest   uint32 // of the frame that is being read
	onEnd  func() // called once, by the reader that meets the end
	ending sync.Once
	ended  chan struct{} // closed then

	mu   sync.Mutex
	said []byte // the last of standard error
}

// maxSaid is what is kept of standard error.
const maxSaid = 4 << 10

// errStreamEnded is what reading gives once the Engine has no more.
var errStreamEnded = errors.New("the stream from the Docker Engine has ended")

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// attach makes the stream of a container that has not started.
func (e *Engine) attach(ctx context.Context, id string) (*stream, error) {
	r, err := e.api.ContainerAttach(bounded(ctx), id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, e.engineError("attach to container", err)
	}
	if err := r.Conn.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, r.Conn.Close())
	}
	return newStream(r), nil
}

func newStream(r types.HijackedResponse) *stream {
	return &stream{conn: r.Conn, r: r.Reader, ended: make(chan struct{}), onEnd: func() {}}
}

// The streams in the head of a frame (Engine API, "Attach to a container").
const (
	headBytes = 8
	stdout    = 1
	stderr    = 2
)

// Read gives what the supervisor has written. One goroutine may read.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.read(p)
	if err != nil {
		s.ending.Do(func() {
			s.onEnd()
			close(s.ended)
		})
	}
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.rest == 0 {
		kind, size, err := s.head()
		switch {
		case err != nil:
			return 0, err
		case kind == stdout:
			s.rest = size
		case kind == stderr:
			if _, err := io.Copy((*tail)(s), io.LimitReader(s.r, int64(size))); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("attachment: stream %d of %d bytes", kind, size)
		}
	}
	n, err := s.r.Read(p[:min(uint64(len(p)), uint64(s.rest))])
	s.rest -= uint32(n) //nolint:gosec // at most rest
	if isEOF(err) && n > 0 {
		err = nil
	}
	return n, err
}

// head reads the head of the next frame: its stream, three zeros, its size.
func (s *stream) head() (kind byte, size uint32, err error) {
	var h [headBytes]byte
	if _, err := io.ReadFull(s.r, h[:]); err != nil {
		return 0, 0, err
	}
	return h[0], binary.BigEndian.Uint32(h[4:]), nil
}

// Write sends to the supervisor.
func (s *stream) Write(p []byte) (int, error) { return s.conn.Write(p) }

// Close hangs up. The supervisor sees the end of its input.
func (s *stream) Close() error {
	if err := s.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// hasEnded tells whether a reader has met the end.
func (s *stream) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// tail is the stream as what keeps the last of standard error.
type tail stream

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, p...)
	t.said = t.said[max(0, len(t.said)-maxSaid):]
	return len(p), nil
}

// suffix is standard error as the end of a message.
func (s *stream) suffix() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := bytes.TrimSpace(s.said)
	if len(text) == 0 {
		return ""
	}
	return ": " + string(text[max(0, len(text)-maxSaid/2):])
}
