package runs

import (
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

func TestPhases_CountWhatRunsSpent(t *testing.T) {
	var p phases
	p.note(sandbox.Usage{Ready: true, QueueMillis: 0.05, PoolMillis: 0.01, RunMillis: 2, ReapMillis: 0.3})
	p.note(sandbox.Usage{QueueMillis: 400, PoolMillis: 0.01, ForkMillis: 1.5, IsolateMillis: 2, RunMillis: 100_000, ReapMillis: 0.3})
	got := p.all()
	for phase, count := range map[Phase]uint64{
		PhaseQueue: 2, PhasePool: 2, PhaseFork: 1, PhaseIsolate: 1, PhaseRun: 2, PhaseCollect: 2, PhaseReap: 2,
	} {
		if got[phase].Count != count {
			t.Errorf("%s: %d, want %d", phase, got[phase].Count, count)
		}
	}
	run := got[PhaseRun]
	var within uint64
	for i, n := range run.Buckets {
		within += n
		if n > 0 && run.Bounds[i] != 0.0025 {
			t.Errorf("2 ms are counted up to %v s", run.Bounds[i])
		}
	}
	if within != 1 || run.Sum < 100 || run.Sum > 101 { // the long run is above all bounds
		t.Errorf("%d within the bounds, sum %v", within, run.Sum)
	}
}
