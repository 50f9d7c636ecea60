package pyrunner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Program is a program without a supervisor, as its engine sees it. What is
// heard of it is hostile once it has started.
type Program interface {
	// Input is what it reads as its standard input.
	Input(text string) error
	// Tell writes to it, in the order of the calls and without waiting.
	Tell(data []byte) error
	// Listen waits for news and reads it into buf, once. With patience, it may
	// wait so long before it wakes up for more of what it has heard already.
	// HeardEnd comes after everything else; io.EOF says that the sandbox was
	// given up.
	Listen(buf []byte, patience time.Duration) (Heard, int, error)
	// Exit tells how it ended, and kills what is left in the sandbox. known is
	// false when that cannot be learnt.
	Exit() (code, signal int, known bool)
	// Kill ends it.
	Kill() error
	// Close ends Listen.
	Close() error
}

// Heard is where something was heard.
type Heard int

// The places.
const (
	HeardNothing Heard = iota
	HeardStatus        // frames: started, or error
	HeardStdout
	HeardStderr
	HeardReport
	HeardEnd
)

// Own is what the plan's frame does not have, because an engine knows it.
type Own struct {
	Rlimits          []Rlimit // those that come after the request's files are written
	Workspace        string
	SitePackages     []string
	ThreadStackBytes int64
}

// part is the program's part of the plan (guest/confine.py, await_run).
type part struct {
	Mode             sandbox.Mode   `json:"mode"`
	Solution         string         `json:"solution"`
	Program          string         `json:"program"`
	Args             []string       `json:"args"`
	FailFast         bool           `json:"fail_fast"`
	Files            []sandbox.File `json:"files"`
	Nonce            string         `json:"nonce"`
	Rlimits          []Rlimit       `json:"rlimits"`
	Workspace        string         `json:"workspace"`
	SitePackages     []string       `json:"site_packages"`
	ThreadStackBytes int64          `json:"thread_stack_bytes"`
}

// NewDirectConversation prepares the run of req by a program that has said hello
// and waits for its part of the plan.
func NewDirectConversation(p Program, own Own, req Request) *Conversation {
	return &Conversation{peer: &directPeer{program: p, own: own}, req: req}
}

// directPeer makes of what is heard of a program what a supervisor would have
// told.
type directPeer struct {
	program Program
	own     Own
	tests   []byte
	buf     []byte
	status  []byte // a frame that is not whole yet
	queue   []*frame

	started, lazy  bool
	stdout, stderr stream
	stopAt         int64 // bytes of output; 0 for no such limit
}

// Most programs write little; those that fill the first buffer get the large one.
const (
	readSize    = 4 << 10
	maxReadSize = 64 << 10
)

// patience is how long a started program's words may wait to be read. Its end
// does not wait.
const patience = 5 * time.Millisecond

func (p *directPeer) begin(req *Request) error {
	if len(req.Collect) > 0 {
		return errors.New("the sandbox has no supervisor that could collect files")
	}
	var err error
	if p.tests, err = prefixed(struct {
		Tests string `json:"tests"`
	}{req.Tests}); err != nil {
		return err
	}
	own, err := prefixed(part{
		Mode: req.Mode, Solution: req.Solution, Program: req.Program, Args: req.Args, FailFast: req.FailFast,
		Files: req.Files, Nonce: req.Nonce, Rlimits: orEmpty(p.own.Rlimits), Workspace: p.own.Workspace,
		SitePackages: p.own.SitePackages, ThreadStackBytes: p.own.ThreadStackBytes,
	})
	if err != nil {
		return err
	}
	p.stdout = newStream("stdout", req.Limits.OutputBytes)
	p.stderr = newStream("stderr", req.Limits.OutputBytes)
	p.stopAt = req.Limits.OutputStopBytes
	p.lazy = req.Mode == sandbox.ModeScript // tests are lazy once they have their text
	p.buf = make([]byte, readSize)
	if req.Stdin != "" {
		if err := p.program.Input(req.Stdin); err != nil {
			return err
		}
	}
	return p.program.Tell(own)
}

// prefixed is v as JSON after its length.
func prefixed(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxFrameToGuest {
		return nil, fmt.Errorf("%w: %d bytes are over %d", ErrFrame, len(body), MaxFrameToGuest)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil //nolint:gosec // as checked
}

func (p *directPeer) next() (*frame, error) {
	for len(p.queue) == 0 {
		wait := time.Duration(0)
		if p.started && p.lazy {
			wait = patience
		}
		from, n, err := p.program.Listen(p.buf, wait)
		if err != nil {
			return nil, err
		}
		if err := p.take(from, p.buf[:n]); err != nil {
			return nil, err
		}
		if n == len(p.buf) && n < maxReadSize {
			p.buf = make([]byte, maxReadSize)
		}
	}
	f := p.queue[0]
	p.queue = p.queue[1:]
	return f, nil
}

// take makes frames of what was heard. They are taken before more is heard, so
// they may use the same bytes.
func (p *directPeer) take(from Heard, data []byte) error {
	switch from {
	case HeardNothing:
	case HeardStatus:
		return p.takeStatus(data)
	case HeardReport:
		p.begun()
		p.queue = append(p.queue, &frame{Type: FrameReport, Data: data})
	case HeardStdout, HeardStderr:
		p.begun()
		s := &p.stdout
		if from == HeardStderr {
			s = &p.stderr
		}
		p.queue = s.take(data, p.queue)
		if p.stopAt > 0 && p.stdout.total+p.stderr.total > p.stopAt {
			return p.program.Kill()
		}
	case HeardEnd:
		return p.finish()
	}
	return nil
}

func (p *directPeer) takeStatus(data []byte) error {
	p.status = append(p.status, data...)
	f, err := readFrame(bytes.NewReader(p.status), MaxFrameFromGuest)
	switch {
	case errors.Is(err, errCut): // the rest is on its way
		return nil
	case err != nil:
		return err
	}
	p.status = nil
	if f.Type == FrameStarted {
		p.begun()
	} else {
		p.queue = append(p.queue, f)
	}
	return nil
}

// begun tells the start. It comes by another way than what the program writes,
// and not at all from one that was killed before.
func (p *directPeer) begun() {
	if !p.started {
		p.started = true
		p.queue = append(p.queue, &frame{Type: FrameStarted})
	}
}

func (p *directPeer) finish() error {
	code, signal, known := p.program.Exit()
	if !known {
		return io.EOF
	}
	p.begun()
	for _, s := range []*stream{&p.stdout, &p.stderr} {
		p.queue = s.finish(p.queue)
	}
	exit := &Exit{Code: code, Signal: signal, StdoutBytes: p.stdout.total, StderrBytes: p.stderr.total}
	p.queue = append(p.queue, &frame{Type: FrameExit, Exit: exit}, &frame{Type: FrameDone})
	return nil
}

func (p *directPeer) handOver() error {
	p.lazy = true
	return p.program.Tell(p.tests)
}

func (p *directPeer) end() error { return p.program.Kill() }

func (p *directPeer) Close() error { return p.program.Close() }

// stream is one output stream: its first bytes are told as they come, its last
// ones are kept back for the end, what is between is counted and dropped.
type stream struct {
	name       string
	head, keep int64 // bytes still to be told at once, and to be kept of the end
	tail       []byte
	total      int64
}

func newStream(name string, limit int64) stream {
	return stream{name: name, head: limit - limit/2, keep: limit / 2}
}

func (s *stream) take(data []byte, queue []*frame) []*frame {
	s.total += int64(len(data))
	if n := min(s.head, int64(len(data))); n > 0 {
		queue = append(queue, &frame{Type: FrameOutput, Stream: s.name, Data: data[:n]})
		s.head -= n
		data = data[n:]
	}
	if len(data) > 0 {
		s.tail = append(s.tail, data...)
		// Trimmed at twice the room: a move for each read would be quadratic.
		if int64(len(s.tail)) > 2*s.keep+maxReadSize {
			s.tail = append(s.tail[:0], s.tail[int64(len(s.tail))-s.keep:]...)
		}
	}
	return queue
}

func (s *stream) finish(queue []*frame) []*frame {
	tail := s.tail[max(0, int64(len(s.tail))-s.keep):]
	if len(tail) == 0 {
		return queue
	}
	return append(queue, &frame{Type: FrameOutput, Stream: s.name, Data: tail, Tail: true})
}
