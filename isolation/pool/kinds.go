package pool

import (
	"errors"
	"sync"
	"time"
)

// Kind is what an engine keeps for the sandboxes of one kind: of one image, for
// instance.
type Kind interface {
	// Boot makes it what sandboxes can be made of, and begins to fill its pool. It
	// tells whether it is of use; if not, the next who needs it tries again.
	Boot() bool
	// Touch counts as somebody asking, and Idle tells for how long nobody has.
	Touch()
	Idle() time.Duration
	// Retire ends what waits for a run. Those who hold the kind may still make
	// sandboxes of it.
	Retire()
	// Deserted tells whether no sandbox of it is left. Nobody holds it then.
	Deserted() bool
	// Close ends the rest.
	Close() error
}

// Kinds are the kinds that are up: booted when somebody needs one, evicted when
// nobody does. It is safe for concurrent use.
type Kinds[K comparable, V Kind] struct {
	// Most is how many are up at once: each costs memory. When one more is needed,
	// that goes which was not used for longest. After is how long one may go unused,
	// and Pause how often that is looked at. They are not to be changed in use.
	Most  int
	After time.Duration
	Pause time.Duration

	mu       sync.Mutex
	up       map[K]*member[V] // those that can be had
	closed   bool
	stop     chan struct{}
	keepers  sync.WaitGroup
	unclosed []error
}

// member is a kind that somebody keeps.
type member[V Kind] struct {
	kind    V
	holders int           // the lock guards it
	evicted chan struct{} // closed when it cannot be had any more
}

// What is kept unless an engine knows better.
const (
	evictAfter = 10 * time.Minute
	evictPause = 15 * time.Second
)

// MostKinds is how many kinds are up at once, unless an engine knows better.
const MostKinds = 8

// NewKinds makes an empty set of kinds.
func NewKinds[K comparable, V Kind]() *Kinds[K, V] {
	return &Kinds[K, V]{Most: MostKinds, After: evictAfter, Pause: evictPause, up: map[K]*member[V]{}, stop: make(chan struct{})}
}

// ErrClosed says that no kind is to be had any more.
var ErrClosed = errors.New("it is closed")

// Hold gives a kind, which is not evicted until it is let go. One that is not up
// is made by create, and booted meanwhile.
func (ks *Kinds[K, V]) Hold(key K, create func() (V, error)) (kind V, letGo func(), err error) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.closed {
		return kind, nil, ErrClosed
	}
	m := ks.up[key]
	if m == nil {
		if kind, err = create(); err != nil {
			return kind, nil, err
		}
		ks.makeRoom()
		m = &member[V]{kind: kind, evicted: make(chan struct{})}
		ks.up[key] = m
		ks.keepers.Go(func() { ks.keep(key, m) })
	}
	m.holders++
	m.kind.Touch()
	return m.kind, sync.OnceFunc(func() {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		m.holders--
	}), nil
}

// makeRoom has one go when there are as many as there may be. The caller holds the
// lock.
func (ks *Kinds[K, V]) makeRoom() {
	if len(ks.up) < ks.Most {
		return
	}
	var key K
	var oldest *member[V]
	for k, m := range ks.up {
		if oldest == nil || m.kind.Idle() > oldest.kind.Idle() {
			key, oldest = k, m
		}
	}
	ks.dismiss(key, oldest)
}

// dismiss takes one from those that can be had. The caller holds the lock.
func (ks *Kinds[K, V]) dismiss(key K, m *member[V]) {
	if ks.up[key] == m {
		delete(ks.up, key)
		close(m.evicted)
	}
}

// keep owns a kind from its boot until it is evicted, or all are closed.
func (ks *Kinds[K, V]) keep(key K, m *member[V]) {
	tick := time.NewTicker(ks.Pause)
	defer tick.Stop()
	if !m.kind.Boot() {
		ks.mu.Lock()
		ks.dismiss(key, m)
		ks.mu.Unlock()
	}
	ks.awaitEviction(key, m, tick.C)
	m.kind.Retire()
	for !ks.left(m) {
		select {
		case <-ks.stop: // no sandbox is live
		case <-tick.C:
			continue
		}
		break
	}
	if err := m.kind.Close(); err != nil {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.unclosed = append(ks.unclosed, err)
	}
}

// awaitEviction returns when nobody can have the kind any more.
func (ks *Kinds[K, V]) awaitEviction(key K, m *member[V], tick <-chan time.Time) {
	for {
		select {
		case <-ks.stop:
			return
		case <-m.evicted:
			return
		case <-tick:
		}
		ks.mu.Lock()
		if m.holders == 0 && m.kind.Idle() > ks.After {
			ks.dismiss(key, m)
		}
		ks.mu.Unlock()
	}
}

// left tells whether nobody makes a sandbox of an evicted kind, and none is left.
func (ks *Kinds[K, V]) left(m *member[V]) bool {
	ks.mu.Lock()
	held := m.holders > 0
	ks.mu.Unlock()
	return !held && m.kind.Deserted()
}

// Up gives a kind that can be had, without holding it.
func (ks *Kinds[K, V]) Up(key K) (kind V, ok bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	m, ok := ks.up[key]
	if ok {
		kind = m.kind
	}
	return kind, ok
}

// All are the kinds that can be had.
func (ks *Kinds[K, V]) All() []V {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	out := make([]V, 0, len(ks.up))
	for _, m := range ks.up {
		out = append(out, m.kind)
	}
	return out
}

// Close ends all. No sandbox may be live.
func (ks *Kinds[K, V]) Close() error {
	ks.mu.Lock()
	if !ks.closed {
		ks.closed = true
		close(ks.stop)
	}
	ks.mu.Unlock()
	ks.keepers.Wait()
	return errors.Join(ks.unclosed...)
}
