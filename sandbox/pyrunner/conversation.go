package pyrunner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

// Conversation is the daemon's side of one run: with the supervisor of its
// sandbox, or with the program itself (Direct).
type Conversation struct {
	peer peer
	req  Request

	// OnStart, when set before Run, is called once when untrusted code begins.
	OnStart func()
	// OnExit, when set before Run, is called once when the program has ended and
	// how is known. What follows, collecting its files, is not the program's time.
	OnExit func()
}

// peer is who a conversation is held with.
type peer interface {
	// begin hands over what to run.
	begin(req *Request) error
	// next waits for the next thing heard. Errors are those of readFrame.
	next() (*frame, error)
	// handOver gives the tests to a program that has loaded its solution.
	handOver() error
	// end has the program killed and its end told.
	end() error
	// Close frees next.
	Close() error
}

// NewConversation prepares the run of req over a stream whose hello has been
// read (ReadHello).
func NewConversation(stream io.ReadWriteCloser, req Request) *Conversation {
	return &Conversation{peer: &supervised{stream: stream, r: bufio.NewReaderSize(stream, 64<<10)}, req: req}
}

// End asks for the program to be killed and for what there is of its report. It
// does not wait. A supervisor that does not answer has to be killed.
func (c *Conversation) End() error { return c.peer.end() }

// Close gives the conversation up: Run returns soon.
func (c *Conversation) Close() error { return c.peer.Close() }

// Run sends the plan and listens until the end of the program has been told or
// nobody is left. The error is for failures of ours, before untrusted code had
// begun; a guest that breaks the protocol afterwards is told in the Ending.
func (c *Conversation) Run() (Ending, error) {
	if err := c.peer.begin(&c.req); err != nil {
		return Ending{}, fmt.Errorf("send plan: %w", err)
	}
	t := newTranscript(c.req.Limits, c.req.Nonce)
	handedOver := false
	for {
		f, err := c.peer.next()
		if err == nil {
			err = t.take(f, c)
		}
		if !handedOver && t.report.wantsTests() {
			handedOver = true
			err = errors.Join(err, c.peer.handOver())
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
