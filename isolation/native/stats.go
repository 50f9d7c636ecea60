package native

import (
	"github.com/sandboxd/sandboxd/isolation"
)

// Stats tells the engine's own figures.
func (e *Engine) Stats() isolation.Stats {
	s := isolation.Stats{Zygotes: e.zygotes.Load()}
	var sample *liveSandbox
	for _, f := range e.families.all() {
		p := f.pool.Stats()
		s.Ready += p.Ready
		s.Taken += p.Taken
		s.Dry += p.Dry
		if waiting := f.pool.Waiting(); sample == nil && len(waiting) > 0 {
			// The newest: the oldest may be the last of a zygote that was replaced, and
			// share its memory with nobody.
			sample = waiting[len(waiting)-1]
		}
	}
	if sample != nil && sample.direct != nil {
		// It may be taken meanwhile; then it is as large as a run, or gone.
		s.ReadyBytes, _ = sample.direct.MemoryBytes()
	}
	if cpu, err := e.cfg.Cgroups.CPU(); err == nil {
		s.CPUSeconds = float64(cpu.TotalMicros) / 1e6
	}
	return s
}
