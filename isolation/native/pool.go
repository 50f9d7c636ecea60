package native

import (
	"context"
	"log/slog"
	"sync"
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

	idled func() // called when the pool is small again

	mu       sync.Mutex
	ready    []*liveSandbox
	target   int
	lastDry  time.Time
	lastTake time.Time
	taken    int64
	dry      int64

	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
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
)

func newPool(most int, log *slog.Logger, busy func() bool, idled func(), fill func(context.Context) (*liveSandbox, error)) *pool {
	least := min(leastReady, most)
	return &pool{
		fill: fill, busy: busy, idled: idled, log: log, least: least, most: most, target: least,
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
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.done = stop, make(chan struct{})
	go p.keepFilled(ctx)
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
		p.lastDry = p.lastTake
		p.target = min(p.most, 2*p.target)
	}
	p.signal()
}

func (p *pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keepFilled makes sandboxes while there are fewer than there should be.
func (p *pool) keepFilled(ctx context.Context) {
	defer close(p.done)
	tick := time.NewTicker(shrinkPause)
	defer tick.Stop()
	for {
		for p.missing() > 0 && ctx.Err() == nil {
			if p.busy() {
				pause(ctx, busyPause)
				continue
			}
			s, err := p.fill(ctx)
			if err != nil {
				if ctx.Err() == nil {
					p.log.LogAttrs(ctx, slog.LevelWarn, "ready sandbox not made",
						slog.String("engine", Name), slog.String("kind", string(sandbox.KindOf(err))), slog.Any("err", err))
					pause(ctx, retryAfter)
				}
				continue
			}
			p.mu.Lock()
			p.ready = append(p.ready, s)
			p.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.shrink()
		}
	}
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
	for p.most > 0 && p.missing() > 0 && ctx.Err() == nil {
		pause(ctx, busyPause)
	}
}

func (p *pool) missing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target - len(p.ready)
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
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop()
		<-p.done
	}
	for s := p.pop(); s != nil; s = p.pop() {
		s.discard()
	}
}
