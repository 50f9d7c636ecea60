package pool_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/isolation/pool"
)

// place is what is made ahead in these tests.
type place struct {
	number    int
	dead      bool
	discarded func(int)
}

func (p *place) Usable() bool { return !p.dead }

func (p *place) Discard() { p.discarded(p.number) }

// maker makes places and counts them.
type maker struct {
	mu        sync.Mutex
	made      int
	discarded []int
	fail      bool
}

func (m *maker) fill(context.Context) (*place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail {
		return nil, errors.New("as the test says")
	}
	m.made++
	return &place{number: m.made, discarded: m.discard}, nil
}

func (m *maker) discard(number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discarded = append(m.discarded, number)
}

func (m *maker) pool(t *testing.T, cfg pool.Config[*place]) *pool.Pool[*place] {
	t.Helper()
	cfg.Log, cfg.Fill, cfg.Busy = slog.New(slog.DiscardHandler), m.fill, func() bool { return false }
	p, err := pool.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPool_HandsOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := m.pool(t, pool.Config[*place]{Most: 4, Least: 2})
		if _, found := p.Take(); found {
			t.Error("an empty pool had one")
		}
		p.Start()
		p.Filled(t.Context())
		seen := map[int]bool{}
		for range 20 {
			p.Filled(t.Context())
			s, found := p.Take()
			if !found || seen[s.number] {
				t.Fatalf("found %v, %+v, seen before: %v", found, s, found && seen[s.number])
			}
			seen[s.number] = true
		}
		p.Close()
		if m.made != len(seen)+len(m.discarded) {
			t.Errorf("%d made, %d handed out, %d discarded", m.made, len(seen), len(m.discarded))
		}
	})
}

func TestPool_ThrowsAwayWhatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := m.pool(t, pool.Config[*place]{Most: 2, Least: 2})
		p.Start()
		p.Filled(t.Context())
		for _, s := range p.Waiting() {
			s.dead = true
		}
		if s, found := p.Take(); found {
			t.Errorf("got %+v", s)
		}
		p.Close()
		if len(m.discarded) < 2 {
			t.Errorf("discarded %v", m.discarded)
		}
	})
}

func TestPool_GrowsWithNeedAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := m.pool(t, pool.Config[*place]{Most: 8, Least: 1, ShrinkAfter: time.Second})
		p.Start()
		p.Filled(t.Context())
		for p.Stats().Dry < 3 {
			if _, found := p.Take(); !found {
				p.Hurry()
			}
		}
		p.Filled(t.Context())
		if got := p.Stats().Ready; got != 8 {
			t.Errorf("%d are ready after three found none", got)
		}
		time.Sleep(10 * time.Second)
		if got := p.Stats().Ready; got != 1 {
			t.Errorf("%d are ready after a quiet time", got)
		}
		p.Close()
	})
}

func TestPool_GoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{fail: true}
		p := m.pool(t, pool.Config[*place]{Most: 1})
		p.Start()
		time.Sleep(3 * time.Second)
		m.mu.Lock()
		m.fail = false
		m.mu.Unlock()
		p.Filled(t.Context())
		p.Close()
		if m.made == 0 {
			t.Error("nothing was made")
		}
	})
}

func TestPool_DisabledMakesNothing(t *testing.T) {
	m := &maker{}
	p := m.pool(t, pool.Config[*place]{})
	p.Start()
	p.Filled(t.Context())
	if _, found := p.Take(); found || m.made > 0 || p.Stats().Dry > 0 {
		t.Errorf("found %v, made %d, %+v", found, m.made, p.Stats())
	}
	p.Close()
}
