package pool

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Sandbox is one that can wait in a pool.
type Sandbox interface {
	comparable
	// Usable tells whether one that has waited can still be used.
	Usable() bool
	// Discard removes one that nobody will use.
	Discard()
}

// Config says what a pool makes, and how eagerly. Fill, Busy and Log are required.
type Config[S Sandbox] struct {
	Engine string // its name, for the log
	Log    *slog.Logger

	// Fill makes a sandbox.
	Fill func(context.Context) (S, error)
	// Busy tells whether the processors have runs to serve.
	Busy func() bool
	// Idled is called when the pool is small again; it may be nil.
	Idled func()
	// Pace is called with true when a run finds none, and with false when none is
	// missing; it may be nil.
	Pace func(hurry bool)

	Most     int // kept ready at most; 0 for none
	Least    int // an idle pool keeps; leastReady where 0
	Together int // made side by side because they cost less so; 1 where 0
	// ShrinkAfter is how long nobody must have found the pool empty for it to become
	// small again; shrinkAfter where 0.
	ShrinkAfter time.Duration
}

// Pool keeps sandboxes that were made ahead of need, each for one run. One
// goroutine fills it, off the path of requests and while processors are idle: what
// it makes costs as much as what a run makes for itself.
//
// It keeps few at first, twice as many each time a run finds none, up to Most,
// and few again once no run has found it empty for a moment: what an idle daemon
// holds is always the same.
type Pool[S Sandbox] struct {
	cfg Config[S]

	mu       sync.Mutex
	ready    []S
	making   int // sandboxes on their way to ready
	target   int
	lastDry  time.Time
	lastTake time.Time
	taken    int64
	dry      int64
	closed   bool

	wake   chan struct{}
	ctx    context.Context // of what fills it, from Start to Close
	stop   context.CancelFunc
	makers sync.WaitGroup
}

const (
	// leastReady is what an idle pool keeps.
	leastReady = 8
	// shrinkPause is how often is looked whether the pool may become small.
	shrinkAfter = 2 * time.Second
	shrinkPause = time.Second
	// retryAfter is the pause after a sandbox could not be made.
	retryAfter = time.Second
	// busyPause is how long filling waits for processors before it looks again.
	busyPause = 5 * time.Millisecond
	// quietAfter is how long no run must have come for a pool to be filled that
	// misses a few. Made together, sandboxes cost less each, and most runs meet
	// nobody at work on them.
	quietAfter = 30 * time.Millisecond
)

// New makes an empty pool, which Start begins to fill.
func New[S Sandbox](cfg Config[S]) (*Pool[S], error) {
	if cfg.Fill == nil || cfg.Busy == nil || cfg.Log == nil {
		return nil, errors.New("pool: what fills it, what is busy and a logger are required")
	}
	cfg.Least = min(cmp.Or(cfg.Least, leastReady), cfg.Most)
	cfg.Together = max(cfg.Together, 1)
	cfg.ShrinkAfter = cmp.Or(cfg.ShrinkAfter, shrinkAfter)
	return &Pool[S]{cfg: cfg, target: cfg.Least, wake: make(chan struct{}, 1), lastTake: time.Now()}, nil
}

// Start begins to fill; once.
func (p *Pool[S]) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil || p.closed || p.cfg.Most == 0 {
		return
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.makers.Go(p.keepFilled)
}

// Take returns a ready sandbox, or false when there is none. Nobody gets it twice.
func (p *Pool[S]) Take() (S, bool) {
	for {
		s, found := p.pop()
		if !found || s.Usable() {
			p.note(found)
			return s, found
		}
		s.Discard() // it died while it waited
	}
}

// pop takes the oldest, so that none waits until what made it is gone.
func (p *Pool[S]) pop() (s S, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		return s, false
	}
	s = p.ready[0]
	p.ready = p.ready[1:]
	return s, true
}

func (p *Pool[S]) note(found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastTake = time.Now()
	if found {
		p.taken++
	} else if p.cfg.Most > 0 {
		p.dry++
		p.target = min(p.cfg.Most, 2*p.target)
	}
	p.signal()
}

// Hurry says that a run is about to make a sandbox of its own.
func (p *Pool[S]) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastDry = time.Now()
	p.pace(true)
	p.signal()
}

func (p *Pool[S]) pace(hurry bool) {
	if p.cfg.Pace != nil {
		p.cfg.Pace(hurry)
	}
}

func (p *Pool[S]) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keepFilled makes sandboxes while there are fewer than there should be.
func (p *Pool[S]) keepFilled() {
	tick := time.NewTicker(shrinkPause)
	defer tick.Stop()
	for {
		for p.ctx.Err() == nil {
			missing := p.missing()
			if missing <= 0 {
				if p.full() && p.sinceDry() > quietAfter {
					p.pace(false)
				}
				break
			}
			if p.cfg.Busy() || p.canWait(missing) {
				pause(p.ctx, busyPause)
			} else if !p.makeReady(min(missing, p.cfg.Together)) {
				pause(p.ctx, retryAfter)
			}
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.shrink()
		}
	}
}

// makeReady makes n sandboxes side by side; false when one could not be made.
func (p *Pool[S]) makeReady(n int) bool {
	var made sync.WaitGroup
	var failed atomic.Bool
	for range n {
		p.begin()
		made.Go(func() { failed.CompareAndSwap(false, !p.makeOne()) })
	}
	made.Wait()
	return !failed.Load()
}

// MakeAhead has some made for those who will come after one that has found none:
// runs come in crowds, and what that one makes itself is made with these.
func (p *Pool[S]) MakeAhead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	for range min(p.target-len(p.ready)-p.making, p.cfg.Together-1) {
		p.making++
		p.makers.Go(func() { p.makeOne() })
	}
}

func (p *Pool[S]) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making++
}

// makeOne adds one sandbox, counted in making already. What comes after Close has
// begun is discarded by it.
func (p *Pool[S]) makeOne() bool {
	s, err := p.cfg.Fill(p.ctx)
	p.mu.Lock()
	p.making--
	if err == nil {
		p.ready = append(p.ready, s)
	}
	p.mu.Unlock()
	if err != nil && p.ctx.Err() == nil {
		p.cfg.Log.LogAttrs(p.ctx, slog.LevelWarn, "ready sandbox not made",
			slog.String("engine", p.cfg.Engine), slog.String("kind", string(sandbox.KindOf(err))), slog.Any("err", err))
	}
	return err == nil
}

// sinceDry is how long ago a run has found none.
func (p *Pool[S]) sinceDry() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastDry)
}

// canWait tells whether so few are missing that more may be made with them soon.
func (p *Pool[S]) canWait(missing int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return missing < min(2, p.target/2) && time.Since(p.lastTake) < quietAfter
}

// shrink makes a pool small again that was not found empty for a while.
func (p *Pool[S]) shrink() {
	p.mu.Lock()
	small := time.Since(p.lastDry) > p.cfg.ShrinkAfter
	if small {
		p.target = p.cfg.Least
	}
	excess := len(p.ready) - p.target
	p.mu.Unlock()
	for ; excess > 0; excess-- {
		if s, found := p.pop(); found {
			s.Discard()
		}
	}
	if small && p.cfg.Idled != nil {
		p.cfg.Idled()
	}
}

// Filled waits until the pool has what it should have.
func (p *Pool[S]) Filled(ctx context.Context) {
	for p.cfg.Most > 0 && !p.full() && ctx.Err() == nil {
		pause(ctx, busyPause)
	}
}

func (p *Pool[S]) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) >= p.target
}

func (p *Pool[S]) missing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target - len(p.ready) - p.making
}

// Touch counts as somebody asking.
func (p *Pool[S]) Touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastTake = time.Now()
}

// Idle tells for how long nobody has asked for a sandbox.
func (p *Pool[S]) Idle() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastTake)
}

// Stats are a pool's figures.
type Stats struct {
	Ready int
	Taken int64 // runs that got a ready sandbox
	Dry   int64 // runs that found none
}

// Stats counts.
func (p *Pool[S]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Ready: len(p.ready), Taken: p.taken, Dry: p.dry}
}

// Waiting lists those that wait. They stay the pool's, which may hand them out or
// discard them meanwhile.
func (p *Pool[S]) Waiting() []S {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]S(nil), p.ready...)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Close ends the filling and removes what is ready.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	p.closed = true
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	p.makers.Wait()
	for s, found := p.pop(); found; s, found = p.pop() {
		s.Discard()
	}
}
