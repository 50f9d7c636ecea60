package native

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/rlimit"
	"github.com/sandboxd/sandboxd/internal/linux/stdio"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// liveSandbox is one live sandbox.
type liveSandbox struct {
	engine  *Engine
	image   *images.Image
	zygote  *zygote
	firstID uint32
	network int // the zygote's number for it
	group   *group
	layers  []sandbox.LayerReport
	proc    *pidfd.File // the sandbox's first process
	// One of the two: how the daemon speaks with the sandbox.
	stream *net.UnixConn  // to its supervisor
	direct *stdio.Streams // to the program, which is alone in it

	rlimits []pyrunner.Rlimit // that the program sets itself

	hostOOM atomic.Bool // killed for memory below its own limit
	undone  atomic.Bool // its first process was killed by somebody outside
	alone   atomic.Bool // its program is known to have ended, which was alone in it
	killed  atomic.Bool // its first process was sent the signal
	final   atomic.Pointer[sandbox.Usage]

	ahead     bool // made for the pool
	making    isolation.Making
	handedOut bool

	destroy sync.Mutex
	gone    bool
}

// Converse implements isolation.Sandbox.
func (s *liveSandbox) Converse(req pyrunner.Request) *pyrunner.Conversation {
	if s.direct == nil {
		return pyrunner.NewConversation(s.stream, req)
	}
	return pyrunner.NewDirectConversation(&program{Streams: s.direct, sandbox: s}, pyrunner.Own{
		Rlimits: orEmpty(s.rlimits), Workspace: isolation.Workspace,
		SitePackages: orEmpty(s.image.SitePackages), ThreadStackBytes: isolation.ThreadStackBytes,
	}, req)
}

// setRlimits sets the limits of a run that is not begun. files: it brings some,
// which may be larger than one that the program may write.
func (s *liveSandbox) setRlimits(limits []pyrunner.Rlimit, files bool) error {
	if s.direct == nil {
		return pyrunner.WriteLimits(s.stream, limits)
	}
	fsize, _ := rlimit.Number("fsize")
	for _, l := range limits {
		if files && l[0] == int64(fsize) {
			s.rlimits = []pyrunner.Rlimit{l}
			continue
		}
		if err := rlimit.Set(s.direct.PID(), int(l[0]), uint64(l[1]), uint64(l[2])); err != nil { //nolint:gosec // limits are not negative
			return err
		}
	}
	return nil
}

// Making implements isolation.Sandbox.
func (s *liveSandbox) Making() isolation.Making { return s.making }

// Layers implements isolation.Sandbox.
func (s *liveSandbox) Layers() []sandbox.LayerReport { return s.layers }

// Kill implements isolation.Sandbox: the end of the pid namespace's first
// process is the end of them all (pid_namespaces(7)). Where nobody is left but the
// sleeper, it is Destroy's.
func (s *liveSandbox) Kill() error {
	if s.alone.Load() {
		return nil
	}
	return s.end()
}

func (s *liveSandbox) end() error {
	if s.killed.Load() {
		return nil
	}
	err := s.proc.Kill()
	s.killed.Store(err == nil)
	return err
}

// Usage implements isolation.Sandbox.
func (s *liveSandbox) Usage() (sandbox.Usage, error) {
	if u := s.final.Load(); u != nil {
		return *u, nil
	}
	cpu, err := s.group.CPU()
	if err != nil {
		return sandbox.Usage{}, err
	}
	u := sandbox.Usage{
		CPUMillis:    float64(cpu.TotalMicros) / 1000,
		UserMillis:   float64(cpu.UserMicros) / 1000,
		SystemMillis: float64(cpu.SystemMicros) / 1000,
	}
	if s.alone.Load() { // what comes now is our taking it down
		s.final.Store(&u)
	}
	return u, nil
}

// Wait implements isolation.Sandbox. The pidfd of a namespace's first process
// becomes readable only after all others are dead (zap_pid_ns_processes,
// kernel/pid_namespace.c).
func (s *liveSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	// The program and its threads are dead, and nobody else was in there but the
	// sleeper, which runs nothing: taking its memory down can wait for Destroy.
	if !s.alone.Load() {
		if err := s.proc.Wait(ctx); err != nil {
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
	if limit := s.group.limits.MemoryBytes; kills > 0 && peak > 0 && peak < limit/10*9 {
		// The kernel counts a kill in this group whichever limit was met: one
		// above it, or the host's own memory.
		s.hostOOM.Store(true)
		kills = 0
	}
	if kills > 0 { // the kernel kills everybody who shares the memory
		s.undone.Store(false)
	}
	return sandbox.Outcome{OOMKills: kills, Usage: usage}, nil
}

// zygoteNotice is how long the news of a zygote's end may take: its sandboxes
// die with it, and may be seen to have died first.
const zygoteNotice = 200 * time.Millisecond

// Failure implements isolation.Sandbox.
func (s *liveSandbox) Failure(ctx context.Context) error {
	if s.hostOOM.Load() {
		return sandbox.Errorf(sandbox.KindUnavailable, "run program", "memory", "the host killed it for memory of its own; the run was below its limit")
	}
	if s.undone.Load() {
		select {
		case <-s.zygote.proc.Done(): // the reason, and the better word
		case <-time.After(zygoteNotice):
			return sandbox.Errorf(sandbox.KindUnavailable, "run program", "sandbox", "its first process was killed from outside")
		case <-ctx.Done():
		}
	}
	select {
	case <-s.zygote.proc.Done():
		return s.zygote.goneError()
	case <-ctx.Done():
	case <-time.After(zygoteNotice):
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
	if s.alone.Load() {
		s.engine.sweeper.wait(ctx, s.engine.live.Load())
	}
	if err := errors.Join(s.end(), s.proc.Wait(ctx)); err != nil {
		return err
	}
	if err := s.closeEnds(); err != nil {
		return err
	}
	if err := s.engine.groups.give(ctx, s.group); err != nil {
		return err
	}
	s.gone = true
	s.zygote.release(s.network)
	s.zygote.users.Add(-1)
	s.engine.ids.Give(s.firstID)
	return s.proc.Close()
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
	return err == nil && !ended && s.zygote.alive()
}

// Discard removes a sandbox that nobody will use. What cannot be removed now is
// logged and left to the next start's reap.
func (s *liveSandbox) Discard() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if err := s.Destroy(ctx); err != nil {
		s.engine.cfg.Log.LogAttrs(ctx, slog.LevelError, "discard sandbox", slog.String("engine", Name), slog.Any("err", err))
	}
}

// deleteTimeout bounds the removal of a group whose processes are being killed.
const deleteTimeout = 10 * time.Second

func emptyAndDelete(g *cgroup.Group) error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	return errors.Join(g.Kill(ctx), g.Delete(ctx))
}
