package native

import "github.com/sandboxd/sandboxd/sandbox"

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

// ZygotePID is the process id of the live zygote, 0 when there is none.
func (e *Engine) ZygotePID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.zygote == nil {
		return 0
	}
	return e.zygote.proc.PID()
}

// KillZygote ends the zygote as an accident would.
func (e *Engine) KillZygote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.zygote == nil {
		return
	}
	e.zygote.proc.Kill()
	<-e.zygote.proc.Done()
}

// ReadyCount is how many sandboxes wait in the pool.
func (e *Engine) ReadyCount() int {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	return len(e.pool.ready)
}

// KillReady ends the sandboxes that wait, as an accident would.
func (e *Engine) KillReady() {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	for _, s := range e.pool.ready {
		_ = s.proc.Kill()
	}
}

// SetForksPerZygote makes zygotes end early.
func (e *Engine) SetForksPerZygote(n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forksPerZygote = n
}

// RetiredCount is how many old zygotes still live.
func (e *Engine) RetiredCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.retired)
}
