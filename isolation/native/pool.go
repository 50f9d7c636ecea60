package native

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// pool keeps sandboxes that were forked and isolated ahead of need, each for one
// run. One goroutine fills it, off the path of requests and while processors are
// idle: what it makes costs as much as what a run makes for itself.
//
// It keeps few at first, twice as many each time a run finds none, up to most,
// and few again once no run has found it empty for a moment: what an idle daemon
// holds is always the same.
type pool struct {
	fill  func(context.Context) (*liveSandbox, error)
	busy  func() bool // the processors have runs to serve
	log   *slog.Logger
	least int
	most  int

	idled func()           // called when the pool is small again
	pace  func(hurry bool) // called when a run finds none, and when none is missing

	mu       sync.Mutex
	ready    []*liveSandbox
	making   int // sandboxes on their way to ready
	target   int
	lastDry  time.Time
	lastTake time.Time
	taken    int64
	dry      int64

	wake   chan struct{}
	ctx    context.Context // of what fills it, from start to close
	stop   context.CancelFunc
	makers sync.WaitGroup
}

const (
	// leastReady is what an idle pool keeps.
	leastReady = 8
	// shrinkAfter is how long nobody must have found the pool empty for it to
	// become small again, and shrinkPause how often that is looked at.
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

func newPool(
	most int, log *slog.Logger, busy func() bool, idled func(), pace func(bool), fill func(context.Context) (*liveSandbox, error),
) *pool {
	least := min(leastReady, most)
	return &pool{
		fill: fill, busy: busy, idled: idled, pace: pace, log: log, least: least, most: most, target: least,
		wake: make(chan struct{}, 1), lastTake: time.Now(),
	}
}

// start begins to fill; once.
func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil || p.most == 0 {
		return
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.makers.Go(p.keepFilled)
}

// take returns a ready sandbox, nil when there is none. Nobody gets it twice.
func (p *pool) take() *liveSandbox {
	for {
		s := p.pop()
		if s == nil || s.usable() {
			p.note(s != nil)
			return s
		}
		s.discard() // it died while it waited
	}
}

// pop takes the oldest, so that none waits until its zygote is gone.
func (p *pool) pop() *liveSandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		return nil
	}
	s := p.ready[0]
	p.ready = p.ready[1:]
	return s
}

func (p *pool) note(found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastTake = time.Now()
	if found {
		p.taken++
	} else if p.most > 0 {
		p.dry++
		p.target = min(p.most, 2*p.target)
	}
	p.signal()
}

// hurry says that a run is about to order a sandbox of its own.
func (p *pool) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastDry = time.Now()
	p.pace(true)
	p.signal()
}

func (p *pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keepFilled makes sandboxes while there are fewer than there should be.
func (p *pool) keepFilled() {
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
			if p.busy() || p.canWait(missing) {
				pause(p.ctx, busyPause)
			} else if !p.makeReady(min(missing, mostAtOnce)) {
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

// makeReady makes n sandboxes side by side, which their zygote forks at one go;
// false when one could not be made.
func (p *pool) makeReady(n int) bool {
	var made sync.WaitGroup
	var failed atomic.Bool
	for range n {
		p.begin()
		made.Go(func() { failed.CompareAndSwap(false, !p.makeOne()) })
	}
	made.Wait()
	return !failed.Load()
}

// makeAhead has some made for those who will come after one that has found none:
// runs come in crowds, and what it orders itself is forked with these.
func (p *pool) makeAhead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	for range min(p.target-len(p.ready)-p.making, mostAtOnce-1) {
		p.making++
		p.makers.Go(func() { p.makeOne() })
	}
}

func (p *pool) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making++
}

// makeOne adds one sandbox, counted in making already. What comes after close has
// begun is discarded by it.
func (p *pool) makeOne() bool {
	s, err := p.fill(p.ctx)
	p.mu.Lock()
	p.making--
	if err == nil {
		p.ready = append(p.ready, s)
	}
	p.mu.Unlock()
	if err != nil && p.ctx.Err() == nil {
		p.log.LogAttrs(p.ctx, slog.LevelWarn, "ready sandbox not made",
			slog.String("engine", Name), slog.String("kind", string(sandbox.KindOf(err))), slog.Any("err", err))
	}
	return err == nil
}

// sinceDry is how long ago a run has found none.
func (p *pool) sinceDry() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastDry)
}

// canWait tells whether so few are missing that more may be made with them soon.
func (p *pool) canWait(missing int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return missing < min(2, p.target/2) && time.Since(p.lastTake) < quietAfter
}

// shrink makes a pool small again that was not found empty for a while.
func (p *pool) shrink() {
	p.mu.Lock()
	small := time.Since(p.lastDry) > shrinkAfter
	if small {
		p.target = p.least
	}
	excess := len(p.ready) - p.target
	p.mu.Unlock()
	for ; excess > 0; excess-- {
		if s := p.pop(); s != nil {
			s.discard()
		}
	}
	if small {
		p.idled()
	}
}

// filled waits until the pool has what it should have.
func (p *pool) filled(ctx context.Context) {
	for p.most > 0 && !p.full() && ctx.Err() == nil {
		pause(ctx, busyPause)
	}
}

func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) >= p.target
}

func (p *pool) missing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target - len(p.ready) - p.making
}

// touch counts as somebody asking.
func (p *pool) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastTake = time.Now()
}

// idle tells for how long nobody has asked for a sandbox.
func (p *pool) idle() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastTake)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// close ends the filling and removes what is ready.
func (p *pool) close() {
	p.mu.Lock()
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	p.makers.Wait()
	for s := p.pop(); s != nil; s = p.pop() {
		s.discard()
	}
}
