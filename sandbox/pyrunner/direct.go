package pyrunner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Direct is a program without a supervisor: the daemon holds its pipes and asks
// the kernel how it ended. All fields are required. What comes through them is
// hostile once the program has started.
type Direct struct {
	Pipes   Pipes
	Program Process
	Own     Own
}

// Pipes are the daemon's ends. Stdin is a file: what the program reads is
// written to it and sealed by Seal.
type Pipes struct {
	Stdin interface {
		io.WriteCloser
		Seal() error // closes the file, too
	}
	Stdout, Stderr, Report io.ReadCloser
	Tests                  io.WriteCloser // the program's part of the plan, then its tests
	Status                 io.ReadCloser  // frames: started, or error
}

// Close closes them all.
func (p *Pipes) Close() error {
	return errors.Join(p.Stdin.Close(), p.Stdout.Close(), p.Stderr.Close(), p.Report.Close(), p.Tests.Close(), p.Status.Close())
}

// Process is the program's process.
type Process interface {
	// Ended blocks until the process has ended or the sandbox has been given up,
	// then kills what is left of the sandbox. known is false when how it ended
	// could not be learnt.
	Ended() (code, signal int, known bool)
	// Kill ends the process.
	Kill() error
}

// Own is what the plan's frame does not have, because an engine knows it.
type Own struct {
	Rlimits          []Rlimit
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
func NewDirectConversation(d Direct, req Request) *Conversation {
	return &Conversation{
		peer: &directPeer{Direct: d, heard: make(chan heard), closed: make(chan struct{})},
		req:  req,
	}
}

// directPeer makes of pipes and exit status what a supervisor would have told.
type directPeer struct {
	Direct
	tests   []byte
	heard   chan heard
	readers sync.WaitGroup // of the pipes that end with their writers
	queue   []*frame

	started        bool
	stdout, stderr stream
	stopAt         int64 // bytes of output; 0 for no such limit

	once   sync.Once
	closed chan struct{}
}

// heard is one thing that a goroutine of a peer has to tell.
type heard struct {
	from *stream // whose bytes; nil for the others
	data []byte
	f    *frame // as it is
	err  error
	exit *Exit
}

const (
	readSize    = 4 << 10 // to begin with: most programs write little
	maxReadSize = 64 << 10
)

func (p *directPeer) begin(req *Request) error {
	if len(req.Collect) > 0 {
		return errors.New("the sandbox has no supervisor that could collect files")
	}
	message := struct {
		Tests string `json:"tests"`
	}{req.Tests}
	var err error
	if p.tests, err = prefixed(message); err != nil {
		return err
	}
	own, err := prefixed(part{
		Mode: req.Mode, Solution: req.Solution, Program: req.Program, Args: req.Args, FailFast: req.FailFast,
		Files: req.Files, Nonce: req.Nonce, Rlimits: p.Own.Rlimits, Workspace: p.Own.Workspace,
		SitePackages: p.Own.SitePackages, ThreadStackBytes: p.Own.ThreadStackBytes,
	})
	if err != nil {
		return err
	}
	p.stdout = newStream("stdout", req.Limits.OutputBytes)
	p.stderr = newStream("stderr", req.Limits.OutputBytes)
	p.stopAt = req.Limits.OutputStopBytes
	if req.Stdin != "" {
		if _, err := io.WriteString(p.Pipes.Stdin, req.Stdin); err != nil {
			return fmt.Errorf("fill standard input: %w", err)
		}
		if err := p.Pipes.Stdin.Seal(); err != nil {
			return fmt.Errorf("seal standard input: %w", err)
		}
	}
	p.listen()
	// A program that has died does not take it; the kernel says why.
	_, _ = p.Pipes.Tests.Write(own)
	return nil
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

// listen starts a goroutine for each thing there is to hear. They end when
// their pipe does, and at the latest with Close.
func (p *directPeer) listen() {
	report := &stream{name: "report"}
	for from, r := range map[*stream]io.Reader{&p.stdout: p.Pipes.Stdout, &p.stderr: p.Pipes.Stderr, report: p.Pipes.Report} {
		p.readers.Go(func() { p.read(from, r) })
	}
	p.readers.Go(func() {
		f, err := readFrame(p.Pipes.Status, MaxFrameFromGuest)
		if err == nil || errors.Is(err, ErrFrame) {
			p.tell(heard{f: f, err: err})
		}
	})
	go func() {
		code, signal, known := p.Program.Ended()
		p.readers.Wait() // every writer is dead
		if !known {
			p.tell(heard{err: io.EOF})
			return
		}
		p.tell(heard{exit: &Exit{Code: code, Signal: signal}})
	}()
}

func (p *directPeer) tell(h heard) {
	select {
	case p.heard <- h:
	case <-p.closed:
	}
}

func (p *directPeer) read(from *stream, r io.Reader) {
	size := readSize
	for {
		buf := make([]byte, size)
		n, err := r.Read(buf)
		if n > 0 {
			p.tell(heard{from: from, data: buf[:n]})
		}
		if err != nil {
			return
		}
		if n == size {
			size = maxReadSize
		}
	}
}

func (p *directPeer) next() (*frame, error) {
	for len(p.queue) == 0 {
		select {
		case h := <-p.heard:
			if err := p.take(h); err != nil {
				return nil, err
			}
		case <-p.closed:
			return nil, io.EOF
		}
	}
	f := p.queue[0]
	p.queue = p.queue[1:]
	return f, nil
}

func (p *directPeer) take(h heard) error {
	switch {
	case h.err != nil:
		return h.err
	case h.f != nil && h.f.Type == FrameStarted:
		p.begun()
	case h.f != nil:
		p.queue = append(p.queue, h.f)
	case h.exit != nil:
		p.finish(h.exit)
	case h.from.name == "report":
		p.begun()
		p.queue = append(p.queue, &frame{Type: FrameReport, Data: h.data})
	default:
		p.begun()
		p.queue = h.from.take(h.data, p.queue)
		if p.stopAt > 0 && p.stdout.total+p.stderr.total > p.stopAt {
			return p.Program.Kill()
		}
	}
	return nil
}

// begun sees to it that the start is told first: it comes by another way than
// what the program writes, and not at all from one that was killed before.
func (p *directPeer) begun() {
	if !p.started {
		p.started = true
		p.queue = append(p.queue, &frame{Type: FrameStarted})
	}
}

func (p *directPeer) finish(exit *Exit) {
	p.begun()
	for _, s := range []*stream{&p.stdout, &p.stderr} {
		p.queue = s.finish(p.queue)
	}
	exit.StdoutBytes, exit.StderrBytes = p.stdout.total, p.stderr.total
	p.queue = append(p.queue, &frame{Type: FrameExit, Exit: exit}, &frame{Type: FrameDone})
}

// handOver writes the tests. They may not fit the pipe, and the program need not
// read them.
func (p *directPeer) handOver() {
	go func() {
		_, _ = p.Pipes.Tests.Write(p.tests)
		_ = p.Pipes.Tests.Close()
	}()
}

func (p *directPeer) end() error { return p.Program.Kill() }

func (p *directPeer) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Pipes.Close()
}

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
