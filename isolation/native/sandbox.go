package native

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/sandbox"
)

// liveSandbox is one live sandbox.
type liveSandbox struct {
	engine  *Engine
	firstID uint32
	group   *cgroup.Group
	layers  []sandbox.LayerReport
	stream  *net.UnixConn
	proc    *pidfd.File

	destroy sync.Mutex
	gone    bool
}

// watch takes over the descriptor of a sandbox's first process.
func watch(f *os.File) (*pidfd.File, error) { return pidfd.FromFile(f) }

// Stream implements isolation.Sandbox.
func (s *liveSandbox) Stream() io.ReadWriteCloser { return s.stream }

// Layers implements isolation.Sandbox.
func (s *liveSandbox) Layers() []sandbox.LayerReport { return s.layers }

// Kill implements isolation.Sandbox: the end of the pid namespace's first
// process is the end of them all (pid_namespaces(7)).
func (s *liveSandbox) Kill() error { return s.proc.Kill() }

// Usage implements isolation.Sandbox.
func (s *liveSandbox) Usage() (sandbox.Usage, error) {
	cpu, err := s.group.CPU()
	if err != nil {
		return sandbox.Usage{}, err
	}
	return sandbox.Usage{
		CPUMillis:    float64(cpu.TotalMicros) / 1000,
		UserMillis:   float64(cpu.UserMicros) / 1000,
		SystemMillis: float64(cpu.SystemMicros) / 1000,
	}, nil
}

// Wait implements isolation.Sandbox. The pidfd of a namespace's first process
// becomes readable only after all others are dead (zap_pid_ns_processes,
// kernel/pid_namespace.c).
func (s *liveSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	if err := s.proc.Wait(ctx); err != nil {
		return sandbox.Outcome{}, err
	}
	usage, err := s.Usage()
	if err != nil {
		return sandbox.Outcome{}, err
	}
	peak, err := s.group.MemoryPeakBytes()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // v2 before Linux 5.19
		return sandbox.Outcome{}, err
	}
	usage.MemoryPeakBytes = peak
	kills, err := s.group.OOMKills()
	return sandbox.Outcome{OOMKills: kills, Usage: usage}, err
}

// Destroy implements isolation.Sandbox.
func (s *liveSandbox) Destroy(ctx context.Context) error {
	s.destroy.Lock()
	defer s.destroy.Unlock()
	if s.gone {
		return nil
	}
	err := errors.Join(s.proc.Kill(), s.stream.Close(), s.proc.Wait(ctx))
	if err != nil {
		return err
	}
	if err := s.group.Delete(ctx); err != nil {
		return err
	}
	s.gone = true
	s.engine.slots.give(s.firstID)
	return s.proc.Close()
}

// deleteTimeout bounds the removal of a group whose processes are being killed.
const deleteTimeout = 10 * time.Second

func emptyAndDelete(g *cgroup.Group) error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	return errors.Join(g.Kill(ctx), g.Delete(ctx))
}
