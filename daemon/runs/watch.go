package runs

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// How often the CPU account is read: not before the limit can be reached, and
// then often enough to stop within about a quarter of a second.
const (
	minPoll = 20 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// watch follows one conversation and ends it when a limit or a cancel says so.
// Only the keeper's goroutine touches its fields while it follows.
type watch struct {
	k  *keeper
	sb isolation.Sandbox

	conv    *pyrunner.Conversation
	started chan begun
	exited  chan exit
	done    chan heard
	enders  sync.WaitGroup // writers of the end frame; they return once the stream is closed

	begun begun
	ended *exit             // nil while the program runs, or when how it ended stays unknown
	cause sandbox.StopCause // the first one wins
	late  bool              // untrusted code did not begin in time

	wall  <-chan time.Time
	poll  <-chan time.Time
	grace <-chan time.Time // after which an asked supervisor is killed
	stuck <-chan time.Time // after which a killed one's stream is closed
}

func newWatch(k *keeper, sb isolation.Sandbox) *watch {
	w := &watch{k: k, sb: sb, started: make(chan begun, 1), exited: make(chan exit, 1), done: make(chan heard, 1)}
	w.conv = sb.Converse(pyrunner.NewRequest(k.plan.spec, k.plan.mode, k.plan.limits))
	w.conv.OnStart = func() {
		base, err := sb.Usage()
		if err != nil { // the base stays zero: setup is then counted as the program's
			k.log(slog.LevelWarn, "read usage at the start", err)
		}
		w.started <- begun{at: time.Now(), base: base}
	}
	w.conv.OnExit = func() {
		e := exit{at: time.Now()}
		usage, err := sb.Usage()
		if err != nil { // the account at the end of the sandbox serves instead
			k.log(slog.LevelWarn, "read usage at the end", err)
		} else {
			e.usage = &usage
		}
		w.exited <- e
	}
	return w
}

// follow runs the conversation to its end.
func (w *watch) follow(ctx context.Context) heard {
	go func() {
		ending, err := w.conv.Run()
		w.done <- heard{ending: ending, err: err, at: time.Now()}
	}()
	start := time.After(w.k.m.timing.Start)
	canceled := ctx.Done()
	for {
		select {
		case h := <-w.done:
			return w.heard(h)
		case b := <-w.started:
			start = nil
			w.begin(b)
		case e := <-w.exited:
			w.end(e)
		case <-start:
			w.late = true
			w.kill()
		case <-canceled:
			canceled = nil
			w.stop(sandbox.StopCanceled)
			w.kill()
		case <-w.wall:
			w.stop(sandbox.StopWall)
		case <-w.poll:
			w.readCPU()
		case <-w.grace:
			w.kill()
		case <-w.stuck:
			_ = w.conv.Close() // frees the reader; Destroy tells what is wrong
		}
	}
}

// heard takes the end, and the start if both came at once.
func (w *watch) heard(h heard) heard {
	select {
	case b := <-w.started:
		w.begun = b
	default:
	}
	select {
	case e := <-w.exited:
		w.ended = &e
	default:
	}
	if h.err != nil && w.late {
		h.err = errors.Join(errors.New("untrusted code did not begin in time"), h.err)
	}
	return h
}

func (w *watch) begin(b begun) {
	w.begun = b
	w.k.entry.enter(Running)
	limits := w.k.plan.limits
	w.wall = time.After(time.Until(b.at.Add(time.Duration(limits.WallMillis) * time.Millisecond)))
	if w.k.plan.engine.can("cpu_ms") {
		w.poll = time.After(time.Duration(limits.CPUMillis) * time.Millisecond / time.Duration(runtime.NumCPU()))
	}
}

// end stops the program's clocks: what comes now is collecting its files, which
// has a bound of its own and costs no more than files when it is reached.
func (w *watch) end(e exit) {
	w.ended = &e
	w.wall, w.poll = nil, nil
	if w.stuck == nil {
		w.grace = time.After(w.k.m.timing.Collect)
	}
}

// readCPU stops a program that has used up its CPU time, or comes back when it
// may have.
func (w *watch) readCPU() {
	w.poll = nil
	u, err := w.sb.Usage()
	if err != nil {
		w.poll = time.After(maxPoll)
		return
	}
	rest := float64(w.k.plan.limits.CPUMillis) - (u.CPUMillis - w.begun.base.CPUMillis)
	if rest <= 0 {
		w.stop(sandbox.StopCPU)
		return
	}
	soonest := time.Duration(rest * float64(time.Millisecond) / float64(runtime.NumCPU()))
	w.poll = time.After(min(max(soonest, minPoll), maxPoll))
}

// stop records the cause if it is the first, and asks the supervisor to end.
// Writing may block on a supervisor that does not read, so it has a goroutine.
func (w *watch) stop(cause sandbox.StopCause) {
	if w.cause != sandbox.StopNone {
		return
	}
	w.cause = cause
	w.wall, w.poll = nil, nil
	if cause == sandbox.StopCanceled {
		return // killed at once: nobody waits for its output
	}
	w.grace = time.After(w.k.m.timing.End)
	w.enders.Go(func() { _ = w.conv.End() }) // a supervisor that cannot be asked is killed
}

func (w *watch) kill() {
	w.grace = nil
	if err := w.sb.Kill(); err != nil {
		w.k.log(slog.LevelError, "kill sandbox", err)
	}
	if w.stuck == nil {
		w.stuck = time.After(w.k.m.timing.Wait)
	}
}
