package pyrunner

import (
	"bufio"
	"fmt"
	"io"
	"sync"
)

// supervised is the supervisor of a sandbox, at the other end of its stream.
type supervised struct {
	stream io.ReadWriteCloser
	r      *bufio.Reader

	mu sync.Mutex // guards writes to stream
}

// ReadHello waits for the supervisor's first frame. A failed setup step comes
// back as *sandbox.StepError.
func ReadHello(r io.Reader) (Hello, error) {
	f, err := readFrame(r, MaxFrameFromGuest)
	if err != nil {
		return Hello{}, fmt.Errorf("read hello: %w", err)
	}
	switch {
	case f.Type == FrameHello && f.Hello != nil:
		return *f.Hello, nil
	case f.Type == FrameError && f.Error != nil:
		return Hello{}, stepError(f.Error)
	}
	return Hello{}, fmt.Errorf("read hello: %w: %q frame", ErrFrame, f.Type)
}

func (s *supervised) begin(req *Request) error {
	return s.write(&frame{Type: FramePlan, Plan: req})
}

func (s *supervised) next() (*frame, error) { return readFrame(s.r, MaxFrameFromGuest) }

// handOver leaves it to the supervisor, which has them with the plan.
func (s *supervised) handOver() error { return nil }

func (s *supervised) end() error { return s.write(&frame{Type: FrameEnd}) }

func (s *supervised) Close() error { return s.stream.Close() }

func (s *supervised) write(f *frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeFrame(s.stream, f, MaxFrameToGuest)
}
