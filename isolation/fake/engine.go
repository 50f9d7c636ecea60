package fake

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Play is one supervisor: it has said hello; it reads the plan, speaks and
// returns. ctx ends when the sandbox is killed; the stream is closed then, so a
// Play that only speaks need not look at it.
type Play func(ctx context.Context, s *Stage) error

// Config says how the engine behaves. The zero value is a fully usable engine
// that holds every layer and plays ByText.
type Config struct {
	Name    string             // "fake" when empty
	Support *isolation.Support // HoldsAll(Name) when nil
	Play    Play               // ByText when nil

	CreateDelay  time.Duration                       // how long Create takes
	CreateError  func(n int, p isolation.Plan) error // asked before the nth sandbox (from 1) is made
	DestroyDelay time.Duration
	ProbeError   error
	Failure      error // what sandboxes say of their end
}

// Engine implements isolation.Engine.
type Engine struct {
	cfg Config

	mu      sync.Mutex
	tried   int
	created int
	live    int
	reaped  bool
	closed  bool
}

// New makes an engine.
func New(cfg Config) *Engine {
	if cfg.Name == "" {
		cfg.Name = "fake"
	}
	if cfg.Support == nil {
		s := HoldsAll(cfg.Name)
		cfg.Support = &s
	}
	if cfg.Play == nil {
		cfg.Play = ByText
	}
	return &Engine{cfg: cfg}
}

// HoldsAll is the support of an engine that lacks nothing.
func HoldsAll(name string) isolation.Support {
	s := isolation.Support{
		Engine: name, Usable: true, Limits: map[string]isolation.LimitSupport{},
		Interpreter: "Python 3.11.2 (scripted)", Image: "host (scripted)", Images: true,
	}
	for _, l := range sandbox.Layers() {
		s.Layers = append(s.Layers, sandbox.LayerReport{Layer: l, State: sandbox.LayerHeld})
	}
	var limits sandbox.Limits
	for _, f := range limits.Fields() {
		s.Limits[f.Name] = isolation.Enforced
	}
	return s
}

// Without is s with one layer missing.
func Without(s isolation.Support, layer sandbox.Layer, reason, mend string) isolation.Support {
	layers := make([]sandbox.LayerReport, 0, len(s.Layers))
	for _, l := range s.Layers {
		if l.Layer == layer {
			l = sandbox.LayerReport{Layer: layer, State: sandbox.LayerMissing, Reason: reason, Mend: mend}
		}
		layers = append(layers, l)
	}
	s.Layers = layers
	return s
}

// Name implements isolation.Engine.
func (e *Engine) Name() string { return e.cfg.Name }

// Probe implements isolation.Engine.
func (e *Engine) Probe(context.Context) (isolation.Support, error) {
	return *e.cfg.Support, e.cfg.ProbeError
}

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	if e.cfg.CreateDelay > 0 {
		select {
		case <-time.After(e.cfg.CreateDelay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if missing := e.cfg.Support.Missing(p.Require); len(missing) > 0 {
		return nil, sandbox.Errorf(sandbox.KindDenied, "create sandbox", "layer "+string(missing[0].Layer), "%s", missing[0].Reason)
	}
	e.mu.Lock()
	e.tried++
	n := e.tried
	e.mu.Unlock()
	if e.cfg.CreateError != nil {
		if err := e.cfg.CreateError(n, p); err != nil {
			return nil, err
		}
	}
	s := newSandbox(e, p)
	if _, err := pyrunner.ReadHello(s.daemon); err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx))
		return nil, err
	}
	return s, nil
}

// Reap implements isolation.Engine.
func (e *Engine) Reap(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reaped = true
	return nil
}

// Close implements isolation.Engine.
func (e *Engine) Close(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// Counts tells how many sandboxes were made and how many are not yet destroyed.
func (e *Engine) Counts() (created, live int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.created, e.live
}

// Calls tells what the daemon called so far.
func (e *Engine) Calls() (reaped, closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reaped, e.closed
}

func (e *Engine) count(created, live int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created += created
	e.live += live
}
