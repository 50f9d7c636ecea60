package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// liveSandbox is one container and what the engine holds for it.
type liveSandbox struct {
	engine   *Engine
	name, id string
	ids      ids
	warnings []string // of the Engine, when it was made
	pid      int      // of its first process, where that is this machine's
	image    *dockerImage
	stream   *stream
	local    *local // nil where the Engine's processes are not this machine's
	remote   string // why not
	landlock int
	limits   sandbox.Limits // that it has now
	layers   []sandbox.LayerReport
	making   isolation.Making

	generation int64 // of the engine, when it was made

	killed    atomic.Bool // by the daemon, while it ran
	lost      atomic.Bool // the Engine let go of it, or cannot tell what became of it
	hostOOM   atomic.Bool // killed for memory below its own limit
	handedOut bool

	mu   sync.Mutex
	base cgroup.CPU // used before it was handed out, as the Engine counts
	peak int64

	destroy sync.Mutex
	gone    bool
}

// limit sets the limits of the run that it was made for or taken for, from which
// on what it uses is the run's.
func (s *liveSandbox) limit(ctx context.Context, l sandbox.Limits) error {
	e := s.engine
	if l.MemoryBytes != s.limits.MemoryBytes || e.tasks(l) != e.tasks(s.limits) {
		if err := s.update(ctx, l); err != nil {
			return err
		}
	}
	s.limits = l
	rlimits, err := e.rlimits(s, l)
	if err != nil {
		return err
	}
	if err := pyrunner.WriteLimits(s.stream, rlimits); err != nil {
		return e.engineError("send limits", errors.Join(errStreamEnded, err))
	}
	if s.local != nil {
		return s.local.group.StartAccount()
	}
	stats, err := s.stats(ctx)
	if err != nil {
		return err
	}
	s.base = cpuOf(stats)
	return nil
}

func (s *liveSandbox) update(ctx context.Context, l sandbox.Limits) error {
	e := s.engine
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r := e.resources(l)
	r.Ulimits = nil // cannot be changed
	if _, err := e.api.ContainerUpdate(ctx, s.id, container.UpdateConfig{Resources: r}); err != nil {
		return e.engineError("update container", err)
	}
	s.limits = l
	return s.checkLimits(ctx)
}

// checkLimits compares what the kernel holds with what was asked for: the Engine
// leaves out what its host does not have.
func (s *liveSandbox) checkLimits(ctx context.Context) error {
	e := s.engine
	want := cgroup.Limits{MemoryBytes: s.limits.MemoryBytes, Pids: e.tasks(s.limits)}
	var have cgroup.Limits
	var err error
	if s.local != nil {
		if have, err = s.local.group.Limits(); err == nil {
			err = s.local.group.SwapOpen()
		}
	} else {
		var stats container.StatsResponse
		stats, err = s.stats(ctx)
		if err == nil && !e.facts().countsSwap {
			err = errors.New("its host does not count swap")
		}
		have.MemoryBytes, have.Pids = int64(stats.MemoryStats.Limit), int64(stats.PidsStats.Limit) //nolint:gosec // limits of ours
	}
	if err == nil && have != want {
		err = fmt.Errorf("memory is limited to %d bytes and not %d, tasks to %d and not %d %.500q",
			have.MemoryBytes, want.MemoryBytes, have.Pids, want.Pids, s.warnings)
	}
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*sandbox.Error](err); known {
		return err
	}
	return &sandbox.Error{
		Kind: sandbox.KindUnavailable, Op: "limit container", Subject: "Docker Engine", Err: err,
		Mend: "give its host the memory and pids controllers, with swap accounting (boot with cgroup_enable=memory swapaccount=1) or no swap",
	}
}

// stats asks the Engine for a container's account.
func (s *liveSandbox) stats(ctx context.Context) (out container.StatsResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := s.engine.api.ContainerStatsOneShot(ctx, s.id)
	if err != nil {
		return out, s.engine.engineError("read usage", err)
	}
	err = json.NewDecoder(r.Body).Decode(&out)
	return out, s.engine.engineError("read usage", errors.Join(err, r.Body.Close()))
}

func cpuOf(stats container.StatsResponse) cgroup.CPU {
	u := stats.CPUStats.CPUUsage
	micros := func(nanos uint64) int64 { return int64(nanos / 1000) } //nolint:gosec // a thousandth fits
	return cgroup.CPU{TotalMicros: micros(u.TotalUsage), UserMicros: micros(u.UsageInUsermode), SystemMicros: micros(u.UsageInKernelmode)}
}

// Converse implements isolation.Sandbox.
func (s *liveSandbox) Converse(req pyrunner.Request) *pyrunner.Conversation {
	return pyrunner.NewConversation(s.stream, req)
}

// Making implements isolation.Sandbox.
func (s *liveSandbox) Making() isolation.Making { return s.making }

// Layers implements isolation.Sandbox.
func (s *liveSandbox) Layers() []sandbox.LayerReport { return s.layers }

// How long after the end of its stream a container's first process may take to begin
// its end, and an Engine to tell of that.
const (
	endGrace  = 500 * time.Millisecond
	tellGrace = 5 * time.Second
)

// streamEnded tells whose the end of the stream was: a supervisor's, which takes the
// container with it, or the Engine's.
func (s *liveSandbox) streamEnded() {
	ctx, cancel := context.WithTimeout(s.engine.ctx, tellGrace)
	defer cancel()
	if s.local == nil {
		if err := s.waitEngine(ctx); err != nil {
			s.lose()
		}
		return
	}
	soon, stop := context.WithTimeout(ctx, endGrace)
	defer stop()
	if err := s.local.wait(soon); err == nil || errors.Is(err, fs.ErrClosed) {
		return
	}
	// A first process that ends waits for all others, which may be many.
	if dying, err := s.local.proc.Dying(); err == nil && !dying {
		s.lose()
	}
}

// lose says that the Engine has let go of it.
func (s *liveSandbox) lose() {
	s.lost.Store(true)
	s.engine.lost()
}

// Kill implements isolation.Sandbox: with the first process of a pid namespace all
// end (pid_namespaces(7)), and with a kernel in user space all that runs in it.
func (s *liveSandbox) Kill() error {
	if !s.stream.hasEnded() {
		s.killed.Store(true)
	}
	if s.local != nil {
		// A daemon that is not root may use the Engine, and not signal its processes.
		if err := s.local.proc.Kill(); !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err := s.engine.api.ContainerKill(ctx, s.id, "SIGKILL")
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) {
		return nil
	}
	return s.engine.engineError("kill container", err)
}

// Usage implements isolation.Sandbox.
func (s *liveSandbox) Usage() (sandbox.Usage, error) {
	if s.local != nil {
		cpu, err := s.local.group.CPU()
		return usageOf(cpu), err
	}
	stats, err := s.stats(s.engine.ctx)
	if err != nil {
		return sandbox.Usage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = max(s.peak, int64(stats.MemoryStats.MaxUsage)) //nolint:gosec // below its limit
	cpu := cpuOf(stats)
	if cpu.TotalMicros < s.base.TotalMicros { // it has ended, and the Engine counts no more
		return sandbox.Usage{}, errors.New("the container has ended")
	}
	return usageOf(cgroup.CPU{
		TotalMicros: cpu.TotalMicros - s.base.TotalMicros, UserMicros: cpu.UserMicros - s.base.UserMicros,
		SystemMicros: cpu.SystemMicros - s.base.SystemMicros,
	}), nil
}

func usageOf(cpu cgroup.CPU) sandbox.Usage {
	return sandbox.Usage{
		CPUMillis: float64(cpu.TotalMicros) / 1000, UserMillis: float64(cpu.UserMicros) / 1000,
		SystemMillis: float64(cpu.SystemMicros) / 1000,
	}
}

// Wait implements isolation.Sandbox. The pidfd of a namespace's first process
// becomes readable only after all others are dead (zap_pid_ns_processes,
// kernel/pid_namespace.c).
func (s *liveSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	if s.local == nil {
		if err := s.waitEngine(ctx); err != nil {
			return sandbox.Outcome{}, err
		}
		return s.factsOfEngine(ctx)
	}
	if err := s.local.wait(ctx); err != nil {
		return sandbox.Outcome{}, err
	}
	o, err := s.factsOfKernel()
	if err == nil {
		return o, nil
	}
	// The Engine was quicker to remove the group, and knows whether there was a kill.
	if err = s.waitEngine(ctx); err == nil {
		o, err = s.factsOfEngine(ctx)
	}
	if err != nil {
		s.lost.Store(true)
	}
	return o, nil
}

func (s *liveSandbox) factsOfKernel() (sandbox.Outcome, error) {
	usage, err := s.Usage()
	if err != nil {
		return sandbox.Outcome{}, err
	}
	peak, err := s.local.group.MemoryPeakBytes()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // v2 before Linux 5.19
		return sandbox.Outcome{}, err
	}
	usage.MemoryPeakBytes = peak
	kills, err := s.local.group.OOMKills()
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

// waitEngine waits until the Engine says that the container has ended.
func (s *liveSandbox) waitEngine(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, failed := s.engine.api.ContainerWait(ctx, s.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
		return nil
	case err := <-failed:
		return s.engine.engineError("wait for container", err)
	}
}

// factsOfEngine asks for the end of a container that is not running.
//
// OOMKilled is true whichever of the container's processes was killed, as it is
// with the kernel's own counter.
func (s *liveSandbox) factsOfEngine(ctx context.Context) (sandbox.Outcome, error) {
	info, err := s.engine.api.ContainerInspect(ctx, s.id)
	if err != nil {
		return sandbox.Outcome{}, s.engine.engineError("inspect container", err)
	}
	var o sandbox.Outcome
	if info.State.OOMKilled {
		o.OOMKills = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Usage.MemoryPeakBytes = s.peak
	return o, nil
}

// codeKilled is the exit code of a container whose first process had a SIGKILL.
const codeKilled = 128 + 9

// Failure implements isolation.Sandbox. A program cannot kill the first process of
// its pid namespace by SIGKILL (pid_namespaces(7)): where neither the daemon nor a
// want of memory did, somebody else has, and an Engine that is stopped does.
func (s *liveSandbox) Failure(ctx context.Context) error {
	unavailable := func(why string) error {
		return sandbox.Errorf(sandbox.KindUnavailable, "run program", "Docker Engine", "%s", why)
	}
	switch {
	case s.hostOOM.Load():
		return sandbox.Errorf(sandbox.KindUnavailable, "run program", "memory", "the host killed it for memory of its own; the run was below its limit")
	case s.lost.Load():
		return unavailable("it was lost in the middle of the run")
	case s.killed.Load():
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.waitEngine(ctx)
	var info container.InspectResponse
	if err == nil {
		info, err = s.engine.api.ContainerInspect(ctx, s.id)
	}
	if err != nil {
		return unavailable("what became of the container is not known: " + err.Error())
	}
	if info.State.ExitCode == codeKilled && !info.State.OOMKilled {
		return unavailable("somebody has killed the container")
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
	if s.local != nil {
		if err := s.Kill(); err != nil {
			return err
		}
		if err := s.local.wait(ctx); err != nil {
			return err
		}
	}
	if err := s.engine.removeOwned(ctx, s.name); err != nil {
		return err
	}
	s.gone = true
	return errors.Join(s.stream.Close(), s.letGo())
}

// letGo closes what the daemon holds of a container.
func (s *liveSandbox) letGo() error {
	if s.local == nil {
		return nil
	}
	return s.local.close()
}

// retire counts it no longer among those that have something running.
func (s *liveSandbox) retire() {
	if s.handedOut {
		s.handedOut = false
		s.engine.live.Add(-1)
		if u, err := s.Usage(); err == nil && s.local != nil {
			s.engine.cpu.Add(int64(u.CPUMillis * 1000))
		}
	}
}

// Usable tells whether a sandbox that has waited can still be used.
func (s *liveSandbox) Usable() bool {
	if s.lost.Load() || s.generation != s.engine.generation() {
		return false
	}
	if s.local == nil {
		return true
	}
	ended, err := s.local.proc.Ended()
	return err == nil && !ended
}

// Discard removes a sandbox that nobody will use, in its own time. What cannot be
// removed now is logged, and removed when it can be.
func (s *liveSandbox) Discard() {
	s.engine.discards.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := s.Destroy(ctx); err != nil {
			s.engine.cfg.Log.LogAttrs(ctx, slog.LevelError, "discard sandbox", slog.String("engine", Name), slog.Any("err", err))
		}
	})
}
