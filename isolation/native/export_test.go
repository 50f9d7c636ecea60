package native

import (
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// PretendMissing makes the kept probe say that a layer does not hold here.
func (e *Engine) PretendMissing(layer sandbox.Layer, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range e.support.Layers {
		if r.Layer == layer {
			e.support.Layers[i] = sandbox.LayerReport{Layer: layer, State: sandbox.LayerMissing, Reason: reason}
		}
	}
}

// ZygotePID is the process id of the usual zygote, 0 when there is none.
func (e *Engine) ZygotePID() int {
	f := e.families.usual
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.zygote == nil {
		return 0
	}
	return f.zygote.proc.PID()
}

// KillZygote ends the usual zygote as an accident would.
func (e *Engine) KillZygote() {
	f := e.families.usual
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.zygote == nil {
		return
	}
	f.zygote.proc.Kill()
	<-f.zygote.proc.Done()
}

// ReadyCount is how many sandboxes wait in the usual pool.
func (e *Engine) ReadyCount() int {
	p := e.families.usual.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// KillReady ends the sandboxes that wait, as an accident would.
func (e *Engine) KillReady() {
	p := e.families.usual.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.ready {
		_ = s.proc.Kill()
	}
}

// SetForksPerZygote makes zygotes end early.
func (e *Engine) SetForksPerZygote(n int64) { e.forksPerZygote.Store(n) }

// RetiredCount is how many old zygotes still live.
func (e *Engine) RetiredCount() int {
	f := e.families.usual
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.retired)
}

// Awake tells whether a preload set is up.
func (e *Engine) Awake(module string) bool {
	e.families.mu.Lock()
	f := e.families.byModule[module]
	e.families.mu.Unlock()
	return f != nil && f.awake()
}

// SetEviction makes unused preload sets go early.
func (e *Engine) SetEviction(after, pause time.Duration) {
	e.families.after, e.families.pause = after, pause
}
