package native

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// sweeper has sandboxes taken down several at a time, so that most runs meet
// nobody at work on the one before. Only those wait in which nothing runs any
// more: a program that has ended leaves the sleeper and its own memory behind.
type sweeper struct {
	mu      sync.Mutex
	waiting int
	gate    chan struct{} // closed for all who wait
}

const (
	// sweepTogether is how many wait at most. Admission counts them as live: more
	// would stand in the way of runs.
	sweepTogether = 3
	// sweepAfter is how long one waits for others.
	sweepAfter = 15 * time.Millisecond
)

func newSweeper() *sweeper { return &sweeper{gate: make(chan struct{})} }

// wait returns when it is time to take a sandbox down. live: how many others have
// something running.
func (s *sweeper) wait(ctx context.Context, live int64) {
	s.mu.Lock()
	s.waiting++
	if s.waiting >= sweepTogether || live >= int64(runtime.NumCPU()) {
		s.open()
		s.mu.Unlock()
		return
	}
	gate := s.gate
	s.mu.Unlock()
	timer := time.NewTimer(sweepAfter)
	defer timer.Stop()
	select {
	case <-gate:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == gate {
		s.open()
	}
}

// open lets all go who wait, and is called with the lock held.
func (s *sweeper) open() {
	close(s.gate)
	s.gate, s.waiting = make(chan struct{}), 0
}
