package native

import (
	"github.com/sandboxd/sandboxd/isolation"
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

// NetworkOf is the zygote's number of a sandbox's network.
func NetworkOf(sb isolation.Sandbox) int { return live(sb).network }

// FirstIDOf is the first of a sandbox's host ids, counted from the engine's.
func FirstIDOf(sb isolation.Sandbox) uint32 { return live(sb).firstID }

// GroupOf is the name of a sandbox's cgroup.
func GroupOf(sb isolation.Sandbox) string { return live(sb).group.Name() }

// KillFirst ends a sandbox's first process as an accident would.
func KillFirst(sb isolation.Sandbox) error { return live(sb).proc.Kill() }

// WakeFirst undoes the stop of a sandbox's first process.
func WakeFirst(sb isolation.Sandbox) error { return live(sb).proc.Signal(sigCont) }

const sigCont = 18 // signal(7)

func live(sb isolation.Sandbox) *liveSandbox {
	return sb.(*liveSandbox) //nolint:forcetypeassert,errcheck // this engine's own
}

// KillReadyPrograms ends the programs of the sandboxes that wait and leaves their
// first processes alive.
func (e *Engine) KillReadyPrograms() {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	for _, s := range e.pool.ready {
		_ = s.direct.Kill()
	}
}

// Waiting is how many orders the zygote has not answered.
func (e *Engine) Waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.zygote.mu.Lock()
	defer e.zygote.mu.Unlock()
	return len(e.zygote.waiting)
}
