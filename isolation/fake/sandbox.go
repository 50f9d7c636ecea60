package fake

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Stage is what a Play acts on: the supervisor's side of the stream and the
// facts that the kernel would count.
type Stage struct {
	*pyrunner.GuestSide
	Plan isolation.Plan

	mu       sync.Mutex
	usage    sandbox.Usage
	cpuRate  float64 // CPU milliseconds per wall millisecond
	rateFrom time.Time
	oomKills int64
	linger   time.Duration
}

// Spend sets what was consumed so far.
func (s *Stage) Spend(cpuMillis float64, memoryPeak int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.CPUMillis = cpuMillis
	s.usage.UserMillis = cpuMillis
	s.usage.MemoryPeakBytes = memoryPeak
}

// Burn consumes CPU from now on at rate CPUs until the sandbox is dead.
func (s *Stage) Burn(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cpuRate, s.rateFrom = rate, time.Now()
}

// KillForMemory counts one kill by the memory cgroup.
func (s *Stage) KillForMemory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oomKills++
}

// Linger keeps the process tree alive for d after a kill.
func (s *Stage) Linger(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linger = d
}

func (s *Stage) spent(now time.Time) sandbox.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.usage
	if s.cpuRate > 0 {
		u.CPUMillis += s.cpuRate * float64(now.Sub(s.rateFrom)) / float64(time.Millisecond)
	}
	return u
}

// fakeSandbox implements isolation.Sandbox.
type fakeSandbox struct {
	engine *Engine
	stage  *Stage
	daemon net.Conn
	guest  net.Conn
	cancel context.CancelFunc
	played chan struct{} // closed when the play is over
	gone   sync.Once

	mu   sync.Mutex
	died time.Time
}

func newSandbox(e *Engine, p isolation.Plan) *fakeSandbox {
	daemon, guest := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	s := &fakeSandbox{
		engine: e, daemon: daemon, guest: guest, cancel: cancel, played: make(chan struct{}),
		stage: &Stage{GuestSide: pyrunner.NewGuestSide(guest), Plan: p},
	}
	e.count(1, 1)
	go s.play(ctx)
	return s
}

// play ends with the guest's end closed, as a dead supervisor's is.
func (s *fakeSandbox) play(ctx context.Context) {
	defer close(s.played)
	defer s.guest.Close()
	if err := s.stage.Hello(pyrunner.Hello{Python: "3.11.2", Arch: "x86_64"}); err != nil {
		return
	}
	_ = s.engine.cfg.Play(ctx, s.stage) // a play that is cut short is a dead supervisor
	s.stage.mu.Lock()
	linger := s.stage.linger
	s.stage.mu.Unlock()
	time.Sleep(linger)
}

// Converse implements isolation.Sandbox.
func (s *fakeSandbox) Converse(req pyrunner.Request) *pyrunner.Conversation {
	return pyrunner.NewConversation(s.daemon, req)
}

// Making implements isolation.Sandbox.
func (s *fakeSandbox) Making() isolation.Making { return isolation.Making{} }

// Usage implements isolation.Sandbox.
func (s *fakeSandbox) Usage() (sandbox.Usage, error) { return s.stage.spent(s.clock()), nil }

// Kill implements isolation.Sandbox.
func (s *fakeSandbox) Kill() error {
	s.mu.Lock()
	if s.died.IsZero() {
		s.died = time.Now()
	}
	s.mu.Unlock()
	s.cancel()
	return s.guest.Close()
}

// clock is now, or the moment of death: the dead consume nothing.
func (s *fakeSandbox) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.died.IsZero() {
		return time.Now()
	}
	return s.died
}

// Wait implements isolation.Sandbox.
func (s *fakeSandbox) Wait(ctx context.Context) (sandbox.Outcome, error) {
	select {
	case <-s.played:
	case <-ctx.Done():
		return sandbox.Outcome{}, context.Cause(ctx)
	}
	s.stage.mu.Lock()
	kills := s.stage.oomKills
	s.stage.mu.Unlock()
	return sandbox.Outcome{OOMKills: kills, Usage: s.stage.spent(s.clock())}, nil
}

// Destroy implements isolation.Sandbox.
func (s *fakeSandbox) Destroy(context.Context) error {
	_ = s.Kill()
	<-s.played
	_ = s.daemon.Close()
	if d := s.engine.cfg.DestroyDelay; d > 0 {
		time.Sleep(d)
	}
	s.gone.Do(func() { s.engine.count(0, -1) })
	return nil
}

// Layers implements isolation.Sandbox.
// Failure implements isolation.Sandbox.
func (s *fakeSandbox) Failure(context.Context) error { return s.engine.cfg.Failure }

func (s *fakeSandbox) Layers() []sandbox.LayerReport { return s.engine.cfg.Support.Layers }
