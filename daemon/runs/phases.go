package runs

import (
	"sync"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Phase is a part of a run's life.
type Phase string

// The phases, in their order. Pool, fork and isolate are what of them was done on
// the path of the run; fork and isolate are not told of a sandbox that was ready.
const (
	PhaseQueue   Phase = "queue"
	PhasePool    Phase = "pool"
	PhaseFork    Phase = "fork"
	PhaseIsolate Phase = "isolate"
	PhaseRun     Phase = "run"
	PhaseCollect Phase = "collect"
	PhaseReap    Phase = "reap"
)

// phaseBounds are the upper bounds of the histograms' buckets, in seconds: from a
// wait that did not happen to the longest run that limits allow.
func phaseBounds() []float64 {
	return []float64{
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
	}
}

// Histogram counts durations.
type Histogram struct {
	Bounds  []float64 // seconds
	Buckets []uint64  // by bound, each without those below it
	Count   uint64
	Sum     float64 // seconds
}

func (h *Histogram) add(seconds float64) {
	h.Count++
	h.Sum += seconds
	for i, bound := range h.Bounds {
		if seconds <= bound {
			h.Buckets[i]++
			return
		}
	}
}

// phases are histograms of what ended runs spent where.
type phases struct {
	mu      sync.Mutex
	byPhase map[Phase]*Histogram
}

func (p *phases) note(u sandbox.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPhase == nil {
		p.byPhase = map[Phase]*Histogram{}
	}
	p.add(PhaseQueue, u.QueueMillis)
	p.add(PhasePool, u.PoolMillis)
	if !u.Ready {
		p.add(PhaseFork, u.ForkMillis)
		p.add(PhaseIsolate, u.IsolateMillis)
	}
	p.add(PhaseRun, u.RunMillis)
	p.add(PhaseCollect, u.CollectMillis)
	p.add(PhaseReap, u.ReapMillis)
}

func (p *phases) add(phase Phase, ms float64) {
	h := p.byPhase[phase]
	if h == nil {
		bounds := phaseBounds()
		h = &Histogram{Bounds: bounds, Buckets: make([]uint64, len(bounds))}
		p.byPhase[phase] = h
	}
	h.add(ms / 1000)
}

// all returns copies.
func (p *phases) all() map[Phase]Histogram {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[Phase]Histogram{}
	for phase, h := range p.byPhase {
		c := *h
		c.Buckets = append([]uint64{}, h.Buckets...)
		out[phase] = c
	}
	return out
}
