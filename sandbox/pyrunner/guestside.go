package pyrunner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
)

// GuestSide speaks a supervisor's side of one frame stream. It is support for
// tests and for isolation/fake: no engine that confines anything uses it.
//
// Methods may be called from several goroutines, except that only one may read
// (ReadPlan, WaitEnd).
type GuestSide struct {
	stream io.ReadWriter

	mu        sync.Mutex // guards writes and nonce
	artifacts []*frame
	nonce     string
}

// NewGuestSide speaks over stream, whose other end is the daemon's.
func NewGuestSide(stream io.ReadWriter) *GuestSide {
	return &GuestSide{stream: stream}
}

// Hello announces a ready sandbox.
func (g *GuestSide) Hello(h Hello) error {
	return g.write(&frame{Type: FrameHello, Hello: &h})
}

// Fail reports a setup step that failed before anything untrusted ran.
func (g *GuestSide) Fail(f GuestFail) error {
	return g.write(&frame{Type: FrameError, Error: &f})
}

// ReadPlan waits for the plan frame and remembers its nonce.
func (g *GuestSide) ReadPlan() (Request, error) {
	f, err := readFrame(g.stream, MaxFrameToGuest)
	if err != nil {
		return Request{}, err
	}
	if f.Type != FramePlan || f.Plan == nil {
		return Request{}, fmt.Errorf("%w: %q frame instead of the plan", ErrFrame, f.Type)
	}
	g.mu.Lock()
	g.nonce = f.Plan.Nonce
	g.mu.Unlock()
	return *f.Plan, nil
}

// WaitEnd blocks until the daemon sends the end frame or closes the stream.
func (g *GuestSide) WaitEnd() error {
	f, err := readFrame(g.stream, MaxFrameToGuest)
	if err != nil {
		return err
	}
	if f.Type != FrameEnd {
		return fmt.Errorf("%w: %q frame instead of the end", ErrFrame, f.Type)
	}
	return nil
}

// Started says that untrusted code begins.
func (g *GuestSide) Started() error {
	return g.write(&frame{Type: FrameStarted})
}

// Output forwards bytes of stdout or stderr.
func (g *GuestSide) Output(stream string, data []byte) error {
	return g.write(&frame{Type: FrameOutput, Stream: stream, Data: data})
}

// Event writes one line of the program's channel with the run's nonce. Fields
// are those of the channel: event, site, message, …
func (g *GuestSide) Event(fields map[string]any) error {
	line := map[string]any{}
	maps.Copy(line, fields)
	g.mu.Lock()
	line["nonce"] = g.nonce
	g.mu.Unlock()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return g.Report(append(text, '\n'))
}

// Report forwards raw bytes of the program's channel.
func (g *GuestSide) Report(data []byte) error {
	return g.write(&frame{Type: FrameReport, Data: data})
}

// Artifact has one whole file of the workspace sent after the exit.
func (g *GuestSide) Artifact(path string, content []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.artifacts = append(g.artifacts, &frame{Type: FrameArtifact, Path: path, Data: content})
}

// Exit sends how the program ended, then the artifacts, then the last frame.
func (g *GuestSide) Exit(e Exit) error {
	g.mu.Lock()
	files := g.artifacts
	g.mu.Unlock()
	err := g.write(&frame{Type: FrameExit, Exit: &e})
	for _, f := range files {
		err = errors.Join(err, g.write(f))
	}
	return errors.Join(err, g.write(&frame{Type: FrameDone}))
}

// Raw writes bytes that need not be a frame.
func (g *GuestSide) Raw(data []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.stream.Write(data)
	return err
}

func (g *GuestSide) write(f *frame) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := writeFrame(g.stream, f, MaxFrameFromGuest)
	if errors.Is(err, io.ErrClosedPipe) {
		return io.EOF
	}
	return err
}
