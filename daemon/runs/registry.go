package runs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// State is how far a live run has come.
type State string

// The states of a live run.
const (
	Queued    State = "queued"
	Preparing State = "preparing"
	Running   State = "running"
	Ending    State = "ending"
)

// LiveRun describes one live run.
type LiveRun struct {
	ID      string            `json:"id"`
	Owner   uint32            `json:"owner" doc:"User id of the caller who started it"`
	State   State             `json:"state" enum:"queued,preparing,running,ending"`
	Engine  string            `json:"engine"`
	AgeMS   int64             `json:"age_ms" doc:"Time since it was accepted, in milliseconds"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
}

// errCanceled is the cause of a run's context after a request to cancel it, errDrained
// when shutdown could not wait any longer. A caller who left has the context's own.
var (
	errCanceled = errors.New("canceled by request")
	errDrained  = errors.New("canceled by shutdown")
)

// entry is one live run.
type entry struct {
	id     string
	owner  uint32
	engine string
	labels map[string]string
	since  time.Time
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	state State
}

func (e *entry) enter(s State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = s
}

func (e *entry) info(now time.Time) LiveRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return LiveRun{
		ID: e.id, Owner: e.owner, State: e.state, Engine: e.engine,
		AgeMS: now.Sub(e.since).Milliseconds(), Labels: maps.Clone(e.labels), Created: e.since.UTC(),
	}
}

// registry holds the live runs, and waits for their keepers.
type registry struct {
	mu      sync.Mutex
	runs    map[string]*entry
	keepers sync.WaitGroup
	closed  bool
}

func newRegistry() *registry { return &registry{runs: map[string]*entry{}} }

// add makes e visible and its keeper awaited, or refuses after close.
func (r *registry) add(e *entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errDraining
	}
	r.runs[e.id] = e
	r.keepers.Add(1)
	return nil
}

// remove takes e out of sight; its keeper may still be at work.
func (r *registry) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, id)
}

func (r *registry) find(id string) (*entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.runs[id]
	return e, ok
}

func (r *registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.runs))
}

func (r *registry) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// List gives the live runs that the caller may see, oldest first.
func (m *Manager) List(caller tenants.Caller) []LiveRun {
	now := time.Now()
	list := []LiveRun{}
	for _, e := range m.live.all() {
		if caller.MaySee(e.owner) {
			list = append(list, e.info(now))
		}
	}
	slices.SortFunc(list, func(a, b LiveRun) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Cancel ends a live run; its own call answers with the verdict canceled. It
// does not wait. A run of somebody else is as good as none.
func (m *Manager) Cancel(caller tenants.Caller, id string) error {
	e, ok := m.live.find(id)
	if !ok || !caller.MaySee(e.owner) {
		return sandbox.Errorf(sandbox.KindNotFound, "cancel", "run "+id, "no such live run")
	}
	e.cancel(errCanceled)
	return nil
}

// Drain refuses new runs and waits for the live ones; when ctx ends first, it
// cancels them and waits until their sandboxes are gone.
func (m *Manager) Drain(ctx context.Context) error {
	m.live.close()
	m.queue.stop()
	gone := make(chan struct{})
	go func() {
		m.live.keepers.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	left := m.live.all()
	for _, e := range left {
		e.cancel(errDrained)
	}
	<-gone
	if len(left) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.KindCanceled, "drain", "", "%d runs were canceled at the deadline", len(left))
}
