package native

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// pool keeps sandboxes that were forked and isolated ahead of need, each for one
// run. It is filled off the request path by one goroutine.
type pool struct {
	fill func(context.Context) (*liveSandbox, error)
	log  *slog.Logger
	size int

	mu    sync.Mutex
	ready []*liveSandbox
	wake  chan struct{}
	stop  context.CancelFunc
	done  chan struct{}
}

// retryAfter is the pause after a sandbox could not be made.
const retryAfter = time.Second

func newPool(size int, log *slog.Logger, fill func(context.Context) (*liveSandbox, error)) *pool {
	return &pool{fill: fill, log: log, size: size, wake: make(chan struct{}, 1)}
}

// start begins to fill; once.
func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil || p.size == 0 {
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
			return s
		}
		s.discard() // it died while it waited
	}
}

func (p *pool) pop() *liveSandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal()
	if len(p.ready) == 0 {
		return nil
	}
	last := len(p.ready) - 1
	s := p.ready[last]
	p.ready = p.ready[:last]
	return s
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
	for {
		for p.missing() && ctx.Err() == nil {
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
		}
	}
}

func (p *pool) missing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) < p.size
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
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
