package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// setupTries is how often a sandbox is made for a run: once more than a failure
// that came before anything untrusted ran.
const setupTries = 2

// sigKill is the signal by which a host takes memory back (signal(7)).
const sigKill = 9

// destroyTries is how often removal is tried before the leftover is logged and
// left to the next start's reap.
const destroyTries = 3

// keeper owns one run and its sandbox until both are gone.
type keeper struct {
	m      *Manager
	plan   *plan
	caller tenants.Caller
	id     string
	entry  *entry
	reply  chan reply // buffered: the keeper never waits for its caller

	accepted time.Time
	admitted time.Time
}

// keep is the keeper's goroutine. The reply leaves when the process tree is
// dead; the slot is given back when the sandbox is removed.
func (k *keeper) keep(ctx context.Context) {
	defer k.m.live.keepers.Done()
	defer k.plan.image.release() // its sandbox is gone by then
	defer k.m.live.remove(k.id)
	release, err := k.m.queue.enter(ctx, k.caller)
	k.admitted = time.Now()
	if err != nil {
		k.answer(k.unstarted(ctx, err))
		return
	}
	defer release()
	k.entry.enter(Preparing)
	for try := 1; ; try++ {
		err = k.attempt(ctx)
		if err == nil {
			return
		}
		if try == setupTries || ctx.Err() != nil || !retryable(err) {
			break
		}
		k.log(slog.LevelWarn, "setup failed, trying a fresh sandbox", err)
	}
	k.answer(k.unstarted(ctx, err))
}

// attempt makes one sandbox and runs the program in it. An error means that
// nothing untrusted ran and nothing was answered.
func (k *keeper) attempt(ctx context.Context) error {
	began := time.Now()
	sb, err := k.create(ctx)
	if err != nil {
		return err
	}
	w := newWatch(k, sb)
	defer w.enders.Wait() // destroy has closed the stream by then
	defer k.destroy(sb)
	heard := w.follow(ctx)
	if heard.err != nil {
		_ = sb.Kill() // destroy reports what cannot be killed
		return setupError(heard.err)
	}
	k.entry.enter(Ending)
	k.answer(k.settle(ctx, sb, w, heard, began))
	return nil
}

func (k *keeper) create(ctx context.Context) (isolation.Sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.m.timing.Create, errors.New("making the sandbox took too long"))
	defer cancel()
	sb, err := k.plan.engine.Create(ctx, isolation.Plan{
		ID: k.id, Image: k.plan.image.reference(k.plan.engine), Limits: k.plan.limits, Require: k.plan.require,
		Collect: len(k.plan.spec.Collect) > 0, Files: len(k.plan.spec.Files) > 0,
		Mentions: k.plan.mentions,
	})
	if err != nil {
		return nil, setupError(err)
	}
	return sb, nil
}

// settle reaps the tree and makes the result out of facts and claims.
func (k *keeper) settle(ctx context.Context, sb isolation.Sandbox, w *watch, heard heard, began time.Time) reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.m.timing.Wait)
	defer cancel()
	if err := sb.Kill(); err != nil {
		k.log(slog.LevelWarn, "kill sandbox", err)
	}
	facts, err := sb.Wait(ctx)
	if err != nil {
		// What may still be alive must not be answered for. Who lost it may say why.
		return reply{err: sandbox.Errorf(sandbox.KindOf(err), "reap sandbox", "", "%w", err)}
	}
	reaped := time.Now()
	e := heard.ending
	o := &e.Outcome
	if w.cause != sandbox.StopNone {
		o.Stopped = w.cause
	}
	o.OOMKills = facts.OOMKills
	if o.Stopped == sandbox.StopNone && (o.Lost || o.Signal == sigKill) {
		// What the engine or the host did to a program is no verdict on it.
		if err := sb.Failure(ctx); err != nil {
			return reply{err: err}
		}
	}
	left, measured := heard.at, facts.Usage
	if w.ended != nil {
		left = w.ended.at
		if u := w.ended.usage; u != nil && u.CPUMillis > 0 {
			measured.CPUMillis, measured.UserMillis, measured.SystemMillis = u.CPUMillis, u.UserMillis, u.SystemMillis
		}
	}
	o.Usage = mergeUsage(o.Usage, measured, w.begun.base)
	making := sb.Making()
	o.Usage.Ready = making.Ready
	o.Usage.PoolMillis, o.Usage.ForkMillis, o.Usage.IsolateMillis = millis(making.Pool), millis(making.Fork), millis(making.Isolate)
	o.Usage.SetupMillis = millis(w.begun.at.Sub(began))
	o.Usage.RunMillis = millis(left.Sub(w.begun.at))
	o.Usage.CollectMillis = millis(heard.at.Sub(left))
	o.Usage.ReapMillis = millis(reaped.Sub(heard.at))
	layers := sb.Layers()
	if layers == nil {
		layers = k.plan.engine.Support.Layers
	}
	return reply{result: k.conclude(e, layers)}
}

// mergeUsage lets the kernel's account of the whole sandbox win over the
// supervisor's of its child, less what the sandbox had consumed before the
// program began.
func mergeUsage(claimed, measured, base sandbox.Usage) sandbox.Usage {
	u := claimed
	if measured.CPUMillis > 0 {
		u.CPUMillis = since(measured.CPUMillis, base.CPUMillis)
		u.UserMillis = since(measured.UserMillis, base.UserMillis)
		u.SystemMillis = since(measured.SystemMillis, base.SystemMillis)
	}
	if measured.MemoryPeakBytes > 0 {
		u.MemoryPeakBytes = measured.MemoryPeakBytes
	}
	return u
}

// since is what was consumed after base, to the microsecond.
func since(now, base float64) float64 {
	return max(0, math.Round((now-base)*1000)/1000)
}

// unstarted is the reply of a run in which nothing untrusted ran: canceled when
// that is why, otherwise our failure.
func (k *keeper) unstarted(ctx context.Context, err error) reply {
	if ctx.Err() != nil {
		return reply{result: k.conclude(pyrunner.Ending{Outcome: sandbox.Outcome{Stopped: sandbox.StopCanceled}}, nil)}
	}
	level := slog.LevelError
	if sandbox.KindOf(err) != sandbox.KindInternal { // full, refused, or not ready: said to the caller
		level = slog.LevelInfo
	}
	k.log(level, "run not started", err)
	return reply{err: err}
}

func (k *keeper) answer(r reply) {
	k.m.live.remove(k.id)
	k.reply <- r
}

// destroy returns when nothing of sb is left, or after destroyTries.
func (k *keeper) destroy(sb isolation.Sandbox) {
	for try := 1; try <= destroyTries; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), k.m.timing.Destroy)
		err := sb.Destroy(ctx)
		cancel()
		if err == nil {
			return
		}
		k.log(slog.LevelError, "destroy sandbox", fmt.Errorf("try %d: %w", try, err))
	}
}

// log says that one step of keeping a run went wrong.
func (k *keeper) log(level slog.Level, step string, err error) {
	k.m.logger.LogAttrs(context.Background(), level, "keeper", slog.String("step", step), slog.String("run_id", k.id),
		slog.Uint64("tenant", uint64(k.caller.UID)), slog.String("engine", k.plan.engine.Name()),
		slog.String("kind", string(sandbox.KindOf(err))), slog.Any("err", err))
}

// setupError gives a failure before the start its kind. One that has a kind
// already keeps it.
func setupError(err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	e := &sandbox.Error{Kind: sandbox.KindInternal, Op: "set up sandbox", Err: err}
	if step, ok := errors.AsType[*sandbox.StepError](err); ok {
		e.Subject = "step " + step.Step
		// Planning bounds names and sizes; what a file system makes of them, with
		// its pages and its own rules, shows only when the files are written.
		if name, isFile := strings.CutPrefix(step.Step, pyrunner.StepWriteFile); isFile {
			e.Kind, e.Op, e.Subject = sandbox.KindInvalid, "write into workspace", "files"
			e.Err = fmt.Errorf("%q cannot be written: %w", name, step)
		}
	}
	return e
}

// retryable tells whether a fresh sandbox may do better.
func retryable(err error) bool {
	k := sandbox.KindOf(err)
	return k == sandbox.KindInternal || k == sandbox.KindUnavailable
}

// heard is how a conversation ended.
type heard struct {
	ending pyrunner.Ending
	err    error
	at     time.Time
}

// exit is when the program had ended, and what the sandbox had consumed by then.
type exit struct {
	at    time.Time
	usage *sandbox.Usage // nil when it could not be read
}

// begun is when untrusted code began, and what had been consumed by then.
type begun struct {
	at   time.Time
	base sandbox.Usage
}

// counters are totals since the start.
type counters struct {
	mu       sync.Mutex
	verdicts map[sandbox.Verdict]int64
	errors   map[sandbox.Kind]int64
}

func (c *counters) conclude(v sandbox.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdicts == nil {
		c.verdicts = map[sandbox.Verdict]int64{}
	}
	c.verdicts[v]++
}

func (c *counters) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = map[sandbox.Kind]int64{}
	}
	c.errors[sandbox.KindOf(err)]++
}
