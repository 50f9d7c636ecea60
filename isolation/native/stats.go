package native

import (
	"github.com/sandboxd/sandboxd/isolation"
)

// Stats tells the engine's own figures.
func (e *Engine) Stats() isolation.Stats {
	s := isolation.Stats{Zygotes: e.zygotes.Load()}
	var sample *liveSandbox
	for _, f := range e.families.all() {
		f.pool.mu.Lock()
		s.Ready += len(f.pool.ready)
		s.Taken += f.pool.taken
		s.Dry += f.pool.dry
		if sample == nil && len(f.pool.ready) > 0 {
			// The newest: the oldest may be the last of a zygote that was replaced, and
			// share its memory with nobody.
			sample = f.pool.ready[len(f.pool.ready)-1]
		}
		f.pool.mu.Unlock()
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
