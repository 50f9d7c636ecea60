package native

import (
	"time"

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
	return e.families.usual.pool.Stats().Ready
}

// KillReady ends the sandboxes that wait, as an accident would.
func (e *Engine) KillReady() {
	for _, s := range e.families.usual.pool.Waiting() {
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
	f, ok := e.families.others.Up(familyKey{e.cfg.Image.Digest, module})
	return ok && f.awake()
}

// SetMostFamilies bounds the families beside the usual one.
func (e *Engine) SetMostFamilies(n int) { e.families.others.Most = n }

// SetEviction makes unused preload sets go early.
func (e *Engine) SetEviction(after, pause time.Duration) {
	e.families.others.After, e.families.others.Pause = after, pause
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
	for _, s := range e.families.usual.pool.Waiting() {
		_ = s.direct.Kill()
	}
}

// Waiting is how many orders the zygote has not answered.
func (e *Engine) Waiting() int {
	f := e.families.usual
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zygote.mu.Lock()
	defer f.zygote.mu.Unlock()
	return len(f.zygote.waiting)
}

// SlowCalls has system calls made from Python, as on an architecture that calls.go
// has no code for.
func SlowCalls(cfg Config) Config {
	cfg.slowCalls = true
	return cfg
}

// Hurry says what a run says that finds no ready sandbox.
func (e *Engine) Hurry() { e.families.usual.pool.Hurry() }
