package oci

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// liveSandbox is one container and what the engine holds for it.
type liveSandbox struct {
	container
	engine  *Engine
	rootfs  *rootfs
	firstID uint32
	group   *cgroup.Group
	limits  sandbox.Limits // that it has now
	layers  []sandbox.LayerReport
	making  isolation.Making

	hostOOM   atomic.Bool // killed for memory below its own limit
	handedOut bool

	destroy sync.Mutex
	gone    bool
}

// limit sets the limits of the run that it was made for or taken for, from which
// on what it uses is the run's.
func (s *liveSandbox) limit(l sandbox.Limits) error {
	e := s.engine
	if now := e.groupLimits(l); now != e.groupLimits(s.limits) {
		if err := s.group.Update(now); err != nil {
			return err
		}
	}
	s.limits = l
	rlimits, err := e.rlimits(s.rootfs, l)
	if err != nil {
		return err
	}
	return errors.Join(pyrunner.WriteLimits(s.stream, rlimits), s.group.StartAccount())
}

// Converse implements isolation.Sandbox.
func (s *liveSandbox) Converse(req pyrunner.Request) *pyrunner.Conversation {
	return pyrunner.NewConversation(s.stream, req)
}

// Making implements isolation.Sandbox.
func (s *liveSandbox) Making() isolation.Making { return s.making }

// Layers implements isolation.Sandbox.
func (s *liveSandbox) Layers() []sandbox.LayerReport { return s.layers }

// Kill implements isolation.Sandbox: with the first process of a pid namespace all
// end (pid_namespaces(7)), and with a kernel in user space all that runs in it.
func (s *liveSandbox) Kill() error { return s.proc.Kill() }

// Usage implements isolation.Sandbox.
func (s *liveSandbox) Usage() (sandbox.Usage, error) {
	cpu, err := s.group.CPU()
	return sandbox.Usage{
		CPUMillis:    float64(cpu.TotalMicros) / 1000,
		UserMillis:   float64(cpu.UserMicros) / 1000,
		SystemMillis: float64(cpu.SystemMicros) / 1000,
	}, err
}

// Wait implements isolation.Sandbox. The pidfd of a namespace's first process
// becomes readable only after all others are dead (zap_pid_ns_processes,
// kernel/pid_namespace.c). Those that run in a kernel in user space are traced by
// it, and are ended by the host when it is.
func (s *liveSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	if err := s.proc.Wait(ctx); err != nil {
		return sandbox.Outcome{}, err
	}
	if s.engine.traits.ownKernel {
		if err := s.group.Kill(ctx); err != nil {
			return sandbox.Outcome{}, err
		}
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
	if err != nil {
		return sandbox.Outcome{}, err
	}
	if kills > 0 && peak > 0 && peak < s.limits.MemoryBytes/10*9 {
		// The kernel counts a kill in this group whichever limit was met: one above
		// it, or the host's own memory.
		s.hostOOM.Store(true)
		kills = 0
	}
	return sandbox.Outcome{OOMKills: kills, Usage: usage}, nil
}

// Failure implements isolation.Sandbox.
func (s *liveSandbox) Failure(context.Context) error {
	if s.hostOOM.Load() {
		return sandbox.Errorf(sandbox.KindUnavailable, "run program", "memory", "the host killed it for memory of its own; the run was below its limit")
	}
	return nil
}

// Destroy implements isolation.Sandbox.
func (s *liveSandbox) Destroy(ctx context.Context) error {
	s.destroy.Lock()
	defer s.destroy.Unlock()
	if s.gone {
		return nil
	}
	s.retire()
	if err := errors.Join(s.Kill(), s.proc.Wait(ctx)); err != nil {
		return err
	}
	runtime, err := s.engine.found(ctx)
	if err != nil {
		return err
	}
	// Where the daemon is who orphans go to, nobody else reaps it.
	_, _ = s.proc.Reap()
	if err := s.engine.remove(ctx, runtime.program, s.name); err != nil {
		return err
	}
	s.gone = true
	s.rootfs.live.Add(-1)
	s.engine.ids.Give(s.firstID)
	return errors.Join(s.group.Close(), s.letGo())
}

// retire counts it no longer among those that have something running.
func (s *liveSandbox) retire() {
	if s.handedOut {
		s.handedOut = false
		s.engine.live.Add(-1)
	}
}

// Usable tells whether a sandbox that has waited can still be used.
func (s *liveSandbox) Usable() bool {
	ended, err := s.proc.Ended()
	return err == nil && !ended
}

// Discard removes a sandbox that nobody will use. What cannot be removed now is
// logged and left to the next start's reap.
func (s *liveSandbox) Discard() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := s.Destroy(ctx); err != nil {
		s.engine.cfg.Log.LogAttrs(ctx, slog.LevelError, "discard sandbox", slog.String("engine", s.engine.Name()), slog.Any("err", err))
	}
}
