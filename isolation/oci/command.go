package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/spawn"
)

// callTimeout bounds a call of the runtime that starts nothing. A runtime that
// hangs is killed.
const callTimeout = 20 * time.Second

// maxAnswer is what is kept of what a runtime says.
const maxAnswer = 64 << 10

// environment is a runtime's whole: none of them needs the daemon's.
func environment() []string { return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"} }

// command is the runtime with what goes before every verb.
func (e *Engine) command(program string, verb ...string) []string {
	args := append([]string{program}, e.traits.flags...)
	args = append(args, "--root", e.dirs().state)
	return append(args, verb...)
}

// call runs a program to its end and returns what it said.
func (e *Engine) call(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	said, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	text := newTail(said)
	p, err := e.spawn(spawn.Spec{Path: args[0], Args: args, Stdout: w, Stderr: w})
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	err = waitFor(ctx, p)
	if !text.wait() { // what it left behind holds the pipe, and is no part of the answer
		_ = said.Close()
		<-text.done
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w%s", args[0], err, text.suffix())
	}
	return text.String(), nil
}

// spawn starts a program as root in the engine's mount namespace.
func (e *Engine) spawn(s spawn.Spec) (*spawn.Process, error) {
	apart, err := e.namespace()
	if err != nil {
		return nil, err
	}
	s.Env, s.Dir, s.Keep = environment(), "/", true
	var p *spawn.Process
	err = apart.Do(func() error {
		p, err = spawn.Start(s)
		return err
	})
	return p, err
}

// waitFor waits for a program to end, and ends it when ctx does.
func waitFor(ctx context.Context, p *spawn.Process) error {
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
		p.KillGroup()
		<-p.Done()
		return fmt.Errorf("it was killed: %w", context.Cause(ctx))
	}
}

// tail keeps the last bytes of what is written to a pipe, for messages.
type tail struct {
	mu   sync.Mutex
	data []byte
	done chan struct{}
}

// newTail reads r until its end, and closes it.
func newTail(r *os.File) *tail {
	t := &tail{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, r)
		_ = r.Close()
	}()
	return t
}

// lastWords is how long the end of a pipe is waited for once its writer has ended.
const lastWords = 200 * time.Millisecond

// wait waits a moment for the end, and tells whether it came.
func (t *tail) wait() bool {
	select {
	case <-t.done:
		return true
	case <-time.After(lastWords):
		return false
	}
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-maxAnswer):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.data))
}

// suffixBytes is how much of it goes into a message.
const suffixBytes = 2 << 10

func (t *tail) suffix() string {
	text := t.String()
	if text == "" {
		return ""
	}
	return ": " + text[max(0, len(text)-suffixBytes):]
}
