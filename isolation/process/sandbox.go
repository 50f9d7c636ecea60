package process

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"

	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// liveSandbox is one live sandbox: a supervisor, its program and their scratch
// directory.
type liveSandbox struct {
	engine *Engine
	uid    uint32
	dir    string
	layers []sandbox.LayerReport
	making isolation.Making
	stream *net.UnixConn
	proc   *spawn.Process

	mu     sync.Mutex
	killed []*pidfd.File // programs that were killed and may still be dying

	destroy sync.Mutex
	gone    bool
}

// Converse implements isolation.Sandbox.
func (s *liveSandbox) Converse(req pyrunner.Request) *pyrunner.Conversation {
	return pyrunner.NewConversation(s.stream, req)
}

// Making implements isolation.Sandbox.
func (s *liveSandbox) Making() isolation.Making { return s.making }

// Layers implements isolation.Sandbox.
func (s *liveSandbox) Layers() []sandbox.LayerReport { return s.layers }

// Usage implements isolation.Sandbox: what the supervisor's living children
// have used, to the clock tick. The exact numbers come with the supervisor's
// own account.
func (s *liveSandbox) Usage() (sandbox.Usage, error) {
	var u sandbox.Usage
	for _, pid := range children(s.proc.PID()) {
		user, system := cpuTimes(pid)
		u.UserMillis += user
		u.SystemMillis += system
	}
	u.CPUMillis = u.UserMillis + u.SystemMillis
	return u, nil
}

// Kill implements isolation.Sandbox. A program that escapes the list dies with
// its supervisor all the same: that is its death signal (PR_SET_PDEATHSIG), which
// the filter keeps it from changing.
func (s *liveSandbox) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	supervisor := s.proc.PID()
	for _, pid := range children(supervisor) {
		program, err := pidfd.Open(pid)
		if err != nil {
			continue // it has ended
		}
		// The number may belong to another process by now; the descriptor cannot.
		if parent(pid) != supervisor {
			_ = program.Close()
			continue
		}
		s.killed = append(s.killed, program)
		if err := program.Kill(); err != nil {
			return err
		}
	}
	s.proc.Kill()
	return nil
}

// Wait implements isolation.Sandbox. It has no counters of a cgroup to read.
func (s *liveSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	select {
	case <-s.proc.Done():
	case <-ctx.Done():
		return sandbox.Outcome{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.killed) > 0 {
		if err := s.killed[0].Wait(ctx); err != nil {
			return sandbox.Outcome{}, err
		}
		_ = s.killed[0].Close()
		s.killed = s.killed[1:]
	}
	if s.engine.root {
		return sandbox.Outcome{}, killOwned(ctx, func(uid uint32) bool { return uid == s.uid })
	}
	return sandbox.Outcome{}, nil
}

// Failure implements isolation.Sandbox: a supervisor here has nothing below it
// that could fail on its own.
func (s *liveSandbox) Failure(context.Context) error { return nil }

// Destroy implements isolation.Sandbox.
func (s *liveSandbox) Destroy(ctx context.Context) error {
	s.destroy.Lock()
	defer s.destroy.Unlock()
	if s.gone {
		return nil
	}
	_ = s.Kill()
	if _, err := s.Wait(ctx); err != nil {
		return err
	}
	// RemoveAll goes by descriptor and follows no link. The program may have
	// taken the permissions away from its own directories; as its user the
	// daemon has to give them back.
	err := errors.Join(s.stream.Close(), removeAll(s.dir))
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	s.gone = true
	s.engine.giveID(s.uid)
	return nil
}

func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	openUp(root, ".", 0)
	return errors.Join(root.Close(), os.RemoveAll(dir))
}

const maxDepth = 64

// openUp makes directories writable again, below root and without following
// links out of it.
func openUp(root *os.Root, name string, depth int) {
	if info, err := root.Lstat(name); err != nil || !info.IsDir() || depth > maxDepth {
		return
	}
	_ = root.Chmod(name, 0o700)
	d, err := root.Open(name)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openUp(root, name+"/"+e.Name(), depth+1)
		}
	}
}
