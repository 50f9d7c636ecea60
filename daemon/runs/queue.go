package runs

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// queue bounds how many sandboxes exist and how many runs wait for one. A slot
// is held until the sandbox is removed, so that slow removal slows admission
// instead of piling up.
type queue struct {
	mu      sync.Mutex
	slots   int // free ones
	room    int // of the line
	line    line
	stopped bool
}

// line orders the waiting runs. It is first in, first out; a weighted fair
// order across tenants replaces this type and nothing else.
type line struct{ waiters []*waiter }

func (l *line) push(w *waiter) { l.waiters = append(l.waiters, w) }
func (l *line) len() int       { return len(l.waiters) }

func (l *line) remove(w *waiter) {
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
}

func (l *line) pop() *waiter {
	if len(l.waiters) == 0 {
		return nil
	}
	w := l.waiters[0]
	l.remove(w)
	return w
}

type waiter struct {
	caller tenants.Caller
	turn   chan error // gets nil with the slot, or why there will be none
}

func newQueue(slots, room int) *queue {
	return &queue{slots: slots, room: room}
}

var errDraining = &sandbox.Error{
	Kind: sandbox.KindUnavailable, Op: "admit",
	Err: errors.New("the daemon is shutting down"), Mend: "send it again when the daemon is back",
}

// enter waits for a slot; release gives it back and must be called once. A full
// queue answers at once.
func (q *queue) enter(ctx context.Context, caller tenants.Caller) (release func(), err error) {
	w, err := q.join(caller)
	if err != nil {
		return nil, err
	}
	if w != nil {
		if err := q.await(ctx, w); err != nil {
			return nil, err
		}
	}
	return sync.OnceFunc(q.leave), nil
}

// join takes a free slot (nil waiter) or a place in the line.
func (q *queue) join(caller tenants.Caller) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopped:
		return nil, errDraining
	case q.slots > 0 && q.line.len() == 0:
		q.slots--
		return nil, nil //nolint:nilnil // no waiter: the slot is taken
	case q.line.len() >= q.room:
		return nil, sandbox.Errorf(sandbox.KindExhausted, "admit", "", "all sandboxes are in use and %d runs wait already", q.line.len())
	}
	w := &waiter{caller: caller, turn: make(chan error, 1)}
	q.line.push(w)
	return w, nil
}

func (q *queue) await(ctx context.Context, w *waiter) error {
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	select {
	case err := <-w.turn: // the turn came in the same moment
		q.mu.Unlock()
		if err == nil {
			q.leave()
		}
	default:
		q.line.remove(w)
		q.mu.Unlock()
	}
	return context.Cause(ctx)
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.line.pop(); w != nil {
		w.turn <- nil
		return
	}
	q.slots++
}

// stop refuses newcomers and sends home who waits.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for w := q.line.pop(); w != nil; w = q.line.pop() {
		w.turn <- errDraining
	}
}

// waiting tells how many runs stand in line.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.len()
}
