package runs

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Order is one request to run something.
type Order struct {
	Spec  *sandbox.Spec
	Fault *TextFault // what decoding the spec has hidden, if anything
}

// RunError is a failure of ours that belongs to a run.
type RunError struct {
	ID  string
	Err error
}

func (e *RunError) Error() string { return "run " + e.ID + ": " + e.Err.Error() }

func (e *RunError) Unwrap() error { return e.Err }

// Run takes an order to its result and returns when every process of it is
// dead. When ctx ends first the run is canceled, which is a verdict. An error
// is a refusal or a failure of ours; what the program did never is one.
func (m *Manager) Run(ctx context.Context, caller tenants.Caller, order Order) (sandbox.Result, error) {
	p, err := m.planner.plan(order.Spec)
	if err != nil {
		m.counts.refuse(err)
		return sandbox.Result{}, err
	}
	kept := false // by the keeper
	defer func() {
		if !kept {
			p.image.release()
		}
	}()
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, &sandbox.Error{Kind: sandbox.KindCanceled, Op: "admit", Err: err}
	}
	k := &keeper{m: m, plan: p, caller: caller, id: sandbox.NewID("run"), accepted: time.Now(), reply: make(chan reply, 1)}
	if order.Fault != nil {
		return k.conclude(order.Fault.ending(), nil), nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k.entry = &entry{
		id: k.id, owner: caller.UID, engine: p.engine.Name(), labels: p.spec.Labels,
		since: k.accepted, cancel: cancel, state: Queued,
	}
	if err := m.live.add(k.entry); err != nil {
		m.counts.refuse(err)
		return sandbox.Result{}, err
	}
	kept = true
	go k.keep(ctx)
	r := <-k.reply
	if r.err != nil {
		m.counts.refuse(r.err)
		return sandbox.Result{}, &RunError{ID: k.id, Err: r.err}
	}
	return r.result, nil
}

// reply is what a run ends with: exactly one of the two.
type reply struct {
	result sandbox.Result
	err    error
}

// conclude makes the result and writes the run's one log line. layers is nil
// when no sandbox held any.
func (k *keeper) conclude(e pyrunner.Ending, layers []sandbox.LayerReport) sandbox.Result {
	p := k.plan
	e.Outcome.Usage.QueueMillis = millis(k.admitted.Sub(k.accepted))
	if k.admitted.IsZero() {
		e.Outcome.Usage.QueueMillis = 0
	}
	res := pyrunner.Assemble(p.mode, p.limits, e)
	if !e.Outcome.Started {
		res.ExitCode = nil // nothing ran that could have had one
	}
	res.ID = k.id
	res.Engine = p.engine.Name()
	res.Image, res.Interpreter = p.image.names(p.engine)
	res.Layers = layers
	if layers == nil {
		res.Layers = []sandbox.LayerReport{}
	}
	res.Owner = k.caller.UID
	res.Labels = p.spec.Labels
	res.Unenforced = p.unenforced
	res.IntegrityNotes = []string{sharedNote}
	if p.mode == sandbox.ModeScript {
		res.IntegrityNotes = []string{}
	}
	k.m.counts.conclude(res.Verdict)
	if e.Outcome.Started {
		k.m.phases.note(res.Usage)
	}
	k.m.logger.LogAttrs(context.Background(), slog.LevelInfo, "run ended",
		slog.String("run_id", k.id), slog.Uint64("tenant", uint64(k.caller.UID)),
		slog.String("engine", res.Engine), slog.String("verdict", string(res.Verdict)),
		slog.Float64("queue_ms", res.Usage.QueueMillis), slog.Float64("setup_ms", res.Usage.SetupMillis),
		slog.Float64("run_ms", res.Usage.RunMillis), slog.Float64("cpu_ms", res.Usage.CPUMillis))
	return res
}

// sharedNote tells what shared integrity is worth.
const sharedNote = "best effort: solution and tests share one interpreter, so a hostile solution can tamper with what the tests see"

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
