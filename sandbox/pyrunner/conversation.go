package pyrunner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Ending is what a conversation found out: the supervisor's account of the
// program and what the program claimed and wrote.
type Ending struct {
	Hello        Hello
	Outcome      sandbox.Outcome // Started, Exited, ExitCode, Signal, Lost, Stopped=protocol; Usage as the supervisor measured it
	Report       sandbox.Report
	Stdout       Output
	Stderr       Output
	Artifacts    []sandbox.Artifact
	ArtifactsCut bool
}

// Conversation is the daemon's side of one run's frame stream.
type Conversation struct {
	stream io.ReadWriter
	req    Request

	// OnStart, when set before Run, is called once when untrusted code begins.
	OnStart func()
	// OnExit, when set before Run, is called once when the program has ended and
	// how is known. What follows, collecting its files, is not the program's time.
	OnExit func()

	mu sync.Mutex // guards writes to stream
}

// NewConversation prepares the run of req over a stream whose hello has been
// read (ReadHello).
func NewConversation(stream io.ReadWriter, req Request) *Conversation {
	return &Conversation{stream: stream, req: req}
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

// End asks the supervisor to kill the program and to report what it has. It
// does not wait. A supervisor that does not answer has to be killed.
func (c *Conversation) End() error {
	return c.write(&frame{Type: FrameEnd})
}

func (c *Conversation) write(f *frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.stream, f, MaxFrameToGuest)
}

// Run sends the plan and reads frames until the supervisor has reported or is
// gone. The error is for failures of ours, before untrusted code had begun; a
// guest that breaks the protocol afterwards is told in the Ending.
func (c *Conversation) Run() (Ending, error) {
	if err := c.write(&frame{Type: FramePlan, Plan: &c.req}); err != nil {
		return Ending{}, fmt.Errorf("send plan: %w", err)
	}
	t := newTranscript(c.req.Limits, c.req.Nonce)
	r := bufio.NewReaderSize(c.stream, 64<<10)
	for {
		f, err := readFrame(r, MaxFrameFromGuest)
		if err == nil {
			err = t.take(f, c)
		}
		switch {
		case err == nil && !t.closed:
		case err == nil:
			return t.ending(), nil
		case !t.started:
			return Ending{}, fmt.Errorf("before the program started: %w", err)
		case errors.Is(err, ErrFrame):
			t.broken(err)
			return t.ending(), nil
		default: // the supervisor is gone: killed, or with the whole sandbox
			return t.ending(), nil
		}
	}
}

func stepError(g *GuestFail) error {
	return &sandbox.StepError{Step: clip(g.Step, 64), Index: g.Index, Errno: g.Errno, Message: clip(g.Message, 512)}
}

// clip cuts a text to at most n bytes, between characters, and marks the cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
