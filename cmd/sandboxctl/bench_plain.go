package main

import (
	"context"
	_ "embed" // the plain runner's program
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

//go:embed bench/plain.py
var plainProgram string

// plainRunner is the process that starts a subprocess for each run. One serves a
// whole bench, a round at a time.
type plainRunner struct {
	ctx    context.Context //nolint:containedctx // lives as long as the one process
	cmd    *exec.Cmd
	orders *json.Encoder
	answer *json.Decoder
	stderr *strings.Builder
	end    func() error // closes its input and waits for it, once
	place  string       // where runs get their directories

	hello plainHello
}

// plainHello is what the process says of itself.
type plainHello struct {
	Python     string `json:"python"`
	Executable string `json:"executable"`
	Numpy      bool   `json:"numpy"`
}

// plainOrder asks for a round, plainAnswer is what came of it.
type plainOrder struct {
	Solution    string            `json:"solution"`
	Tests       string            `json:"tests"`
	Memory      int64             `json:"memory_bytes"`
	Environment map[string]string `json:"environment"`
	Clients     int               `json:"clients"`
	Runs        int               `json:"runs"`
	Span        float64           `json:"span_s"`
}

type plainAnswer struct {
	Latencies []float64 `json:"latencies_ms"`
	Elapsed   float64   `json:"elapsed_s"`
	CPU       float64   `json:"cpu_s"`
	Error     string    `json:"error"`
}

// startPlain starts the process; canceling ctx kills it.
func startPlain(ctx context.Context, python string) (*plainRunner, error) {
	place, err := os.MkdirTemp("", "sandboxctl-bench-")
	if err != nil {
		return nil, err
	}
	p := &plainRunner{ctx: ctx, place: place, stderr: &strings.Builder{}}
	if err := p.start(python); err != nil {
		return nil, errors.Join(fmt.Errorf("start plain runner: %w", err), os.RemoveAll(place))
	}
	if err := p.read(&p.hello); err != nil {
		_ = p.close() // its end has been told
		return nil, fmt.Errorf("%s: %w", python, err)
	}
	return p, nil
}

func (p *plainRunner) start(python string) error {
	p.cmd = exec.CommandContext(p.ctx, python, "-c", plainProgram, p.place)
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = 5 * time.Second // for runs that outlive their parent
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.orders, p.answer = json.NewEncoder(stdin), json.NewDecoder(stdout)
	p.end = sync.OnceValue(func() error { return errors.Join(stdin.Close(), p.cmd.Wait()) })
	return p.cmd.Start()
}

// read takes one answer; when the process is gone its own words tell why.
func (p *plainRunner) read(into any) error {
	err := p.answer.Decode(into)
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	}
	_ = p.end() // only now is all of its stderr here
	return fmt.Errorf("the plain runner is gone: %w\n%s", err, strings.TrimSpace(p.stderr.String()))
}

// round runs one load.
func (p *plainRunner) round(e exercise, l load) (benchSide, error) {
	if e.environment == nil {
		e.environment = map[string]string{}
	}
	err := p.orders.Encode(plainOrder{
		Solution: e.solution, Tests: e.tests, Memory: e.memory, Environment: e.environment,
		Clients: l.clients, Runs: l.runs, Span: l.span.Seconds(),
	})
	if err != nil && p.ctx.Err() == nil {
		return benchSide{}, fmt.Errorf("order plain runs: %w", err)
	}
	var a plainAnswer
	if err := p.read(&a); err != nil {
		return benchSide{}, err
	}
	if a.Error != "" {
		return benchSide{}, &wrongRunError{side: sidePlain, detail: a.Error}
	}
	s := sideOf(a.Latencies, time.Duration(a.Elapsed*float64(time.Second)))
	s.CPU = perRun(&a.CPU, s.Runs)
	return s, nil
}

// close ends the process and removes what it left.
func (p *plainRunner) close() error {
	err := p.end()
	if p.ctx.Err() != nil {
		err = nil // killed as asked
	}
	return errors.Join(err, os.RemoveAll(p.place))
}
