package enginetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// grace is what a supervisor gets to report after its program was stopped.
const grace = 2 * time.Second

var runNumber atomic.Int64

// newPlan makes a plan with the limits' gaps filled by defaults.
func newPlan(t testing.TB, limits sandbox.Limits) isolation.Plan {
	t.Helper()
	planned, _, err := limits.Plan(sandbox.DefaultLimits(), sandbox.DefaultCeilings())
	if err != nil {
		t.Fatal(err)
	}
	return isolation.Plan{ID: fmt.Sprintf("test_%d", runNumber.Add(1)), Limits: planned}
}

// runSpec does what the daemon's keeper does, in its simplest form: one sandbox,
// a wall clock, facts, verdict, nothing left.
func runSpec(t testing.TB, e isolation.Engine, spec sandbox.Spec) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	p := newPlan(t, spec.Limits)
	p.Collect, p.Files = len(spec.Collect) > 0, len(spec.Files) > 0
	mode, err := spec.Mode()
	if err != nil {
		t.Fatal(err)
	}
	sb, err := e.Create(ctx, p)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	defer func() {
		if err := sb.Destroy(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("destroy: %v", err)
		}
	}()
	end := converse(t, sb, pyrunner.NewRequest(&spec, mode, p.Limits))
	if err := sb.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	facts, err := sb.Wait(ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	end.Outcome.OOMKills = facts.OOMKills
	if facts.Usage.CPUMillis > 0 {
		end.Outcome.Usage.CPUMillis = facts.Usage.CPUMillis
		end.Outcome.Usage.MemoryPeakBytes = facts.Usage.MemoryPeakBytes
	}
	return pyrunner.Assemble(mode, p.Limits, end)
}

// converse runs the conversation under the wall clock and the CPU account.
func converse(t testing.TB, sb isolation.Sandbox, req pyrunner.Request) pyrunner.Ending {
	t.Helper()
	c := sb.Converse(req)
	started := make(chan struct{})
	c.OnStart = func() { close(started) }
	done := make(chan struct{})
	stopped := make(chan sandbox.StopCause, 1)
	go func() {
		cause := watch(sb, req.Limits, started, done)
		if cause != sandbox.StopNone {
			_ = c.End() // a supervisor that is gone is killed below
			select {
			case <-done:
			case <-time.After(grace):
				_ = sb.Kill()
			}
		}
		stopped <- cause
	}()
	end, err := c.Run()
	close(done)
	cause := <-stopped
	if err != nil {
		t.Fatalf("converse: %v", err)
	}
	if cause != sandbox.StopNone {
		end.Outcome.Stopped = cause
	}
	return end
}

func watch(sb isolation.Sandbox, l sandbox.Limits, started, done <-chan struct{}) sandbox.StopCause {
	select {
	case <-started:
	case <-done:
		return sandbox.StopNone
	}
	base, _ := sb.Usage()
	wall := time.After(time.Duration(l.WallMillis) * time.Millisecond)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return sandbox.StopNone
		case <-wall:
			return sandbox.StopWall
		case <-tick.C:
			if u, err := sb.Usage(); err == nil && u.CPUMillis-base.CPUMillis > float64(l.CPUMillis) {
				return sandbox.StopCPU
			}
		}
	}
}

func script(text string) sandbox.Spec { return sandbox.Spec{Program: &text} }

func tests(solution, tests string) sandbox.Spec {
	return sandbox.Spec{Solution: &solution, Tests: &tests}
}
