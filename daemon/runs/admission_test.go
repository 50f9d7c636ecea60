package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestAdmission_FullQueueAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent, cfg.QueueLength = 1, 1
		m, e := manage(t, cfg, fake.Config{})
		for range 2 {
			go func() { _, _ = m.Run(t.Context(), tenants.Caller{}, script("#fake hang", sandbox.Limits{})) }()
		}
		synctest.Wait()
		begin := time.Now()
		_, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{}))
		if sandbox.KindOf(err) != sandbox.KindExhausted || time.Since(begin) != 0 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		if s := m.Stats(); s.Waiting != 1 || s.Live[Running] != 1 || s.Live[Queued] != 1 || s.Errors[sandbox.KindExhausted] != 1 {
			t.Errorf("stats %+v", s)
		}
		rest(t, m, e)
	})
}

func TestAdmission_IsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent = 1
		m, e := manage(t, cfg, fake.Config{})
		var mu sync.Mutex
		var order []int
		for i := range 4 {
			go func() {
				res, err := m.Run(t.Context(), tenants.Caller{}, script("#fake hang", sandbox.Limits{WallMillis: 100}))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if want := float64(100 * i); err != nil || res.Usage.QueueMillis != want {
					t.Errorf("run %d waited %v ms, want %v, %v", i, res.Usage.QueueMillis, want, err)
				}
			}()
			synctest.Wait()
		}
		rest(t, m, e)
		synctest.Wait()
		if !slices.IsSorted(order) || len(order) != 4 {
			t.Errorf("order %v", order)
		}
	})
}

// TestAdmission_SlotIsHeldUntilDestroyed: the reply leaves before removal, the
// slot comes back after it.
func TestAdmission_SlotIsHeldUntilDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent = 1
		m, e := manage(t, cfg, fake.Config{DestroyDelay: 3 * time.Second})
		begin := time.Now()
		if _, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{})); err != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		res, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{}))
		if err != nil || res.Usage.QueueMillis != 3000 {
			t.Errorf("waited %v ms, %v", res.Usage.QueueMillis, err)
		}
		rest(t, m, e)
	})
}

// TestAdmission_NeverLosesASlot drives the queue at random and counts.
func TestAdmission_NeverLosesASlot(t *testing.T) {
	parent := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		slots, room := rapid.IntRange(1, 3).Draw(t, "slots"), rapid.IntRange(0, 3).Draw(t, "room")
		q := newQueue(slots, room)
		var held []func()
		var waiting []*waiter
		var cancels []context.CancelFunc
		type came struct {
			release func()
			err     error
		}
		var turns []chan came
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				w, err := q.join(tenants.Caller{})
				switch {
				case err != nil:
					if len(waiting) < room || sandbox.KindOf(err) != sandbox.KindExhausted {
						t.Fatalf("refused with %d waiting of %d: %v", len(waiting), room, err)
					}
				case w == nil:
					held = append(held, sync.OnceFunc(q.leave))
				default:
					ctx, cancel := context.WithCancel(parent)
					turn := make(chan came, 1)
					go func() {
						err := q.await(ctx, w)
						turn <- came{sync.OnceFunc(q.leave), err}
					}()
					waiting, cancels, turns = append(waiting, w), append(cancels, cancel), append(turns, turn)
				}
			case 1:
				if len(held) == 0 {
					continue
				}
				held[0]()
				held = held[1:]
				if len(waiting) > 0 { // the first in line gets it
					got := <-turns[0]
					if got.err != nil {
						t.Fatal(got.err)
					}
					cancels[0]()
					held = append(held, got.release)
					waiting, cancels, turns = waiting[1:], cancels[1:], turns[1:]
				}
			case 2:
				if len(waiting) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "who")
				cancels[i]()
				if got := <-turns[i]; got.err == nil {
					t.Fatal("a canceled waiter got a slot that nobody gave back")
				}
				waiting, cancels, turns = slices.Delete(waiting, i, i+1), slices.Delete(cancels, i, i+1), slices.Delete(turns, i, i+1)
			}
			if q.waiting() != len(waiting) {
				t.Fatalf("%d wait, want %d", q.waiting(), len(waiting))
			}
		}
		q.stop()
		for i, turn := range turns {
			if got := <-turn; !errors.Is(got.err, errDraining) {
				t.Fatalf("waiter %d: %v", i, got.err)
			}
			cancels[i]()
		}
		for _, release := range held {
			release()
		}
		if q.slots != slots {
			t.Fatalf("%d slots, want %d", q.slots, slots)
		}
	})
}

func TestDrain_LetsLiveRunsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent = 1
		m, e := manage(t, cfg, fake.Config{})
		got := make(chan string, 2)
		for i := range 2 {
			go func() {
				res, err := m.Run(t.Context(), tenants.Caller{}, script("#fake hang", sandbox.Limits{WallMillis: 1000}))
				got <- fmt.Sprint(i, " ", res.Verdict, " ", sandbox.KindOf(err))
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Drain(ctx); err != nil {
			t.Error(err)
		}
		answers := []string{<-got, <-got}
		slices.Sort(answers)
		if want := []string{"0 wall_limit internal", "1  unavailable"}; !slices.Equal(answers, want) {
			t.Errorf("answers %q, want %q", answers, want)
		}
		if _, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{})); sandbox.KindOf(err) != sandbox.KindUnavailable {
			t.Errorf("a run after the drain: %v", err)
		}
		if m.Ready() == nil {
			t.Error("ready after the drain")
		}
		rest(t, m, e)
	})
}

func TestDrain_CancelsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{DestroyDelay: time.Second})
		got := make(chan sandbox.Verdict, 1)
		go func() {
			res, _ := m.Run(t.Context(), tenants.Caller{}, script("#fake deaf", sandbox.Limits{}))
			got <- res.Verdict
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		err := m.Drain(ctx)
		if sandbox.KindOf(err) != sandbox.KindCanceled || time.Since(begin) != 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		if v := <-got; v != sandbox.Canceled {
			t.Errorf("verdict %s", v)
		}
		rest(t, m, e)
	})
}

func TestRegistry_OnlyOwnerAndRootSeeARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{})
		go func() {
			_, _ = m.Run(t.Context(), tenants.Caller{UID: 7}, script("#fake deaf", sandbox.Limits{}))
		}()
		synctest.Wait()
		own, root, other := tenants.Caller{UID: 7}, tenants.Caller{UID: 0}, tenants.Caller{UID: 8}
		if len(m.List(own)) != 1 || len(m.List(root)) != 1 || len(m.List(other)) != 0 {
			t.Errorf("own %v, root %v, other %v", m.List(own), m.List(root), m.List(other))
		}
		id := m.List(own)[0].ID
		if err := m.Cancel(other, id); sandbox.KindOf(err) != sandbox.KindNotFound {
			t.Errorf("another's cancel: %v", err)
		}
		if err := m.Cancel(root, id); err != nil {
			t.Errorf("root's cancel: %v", err)
		}
		rest(t, m, e)
	})
}

func probed(t *testing.T, name string, change func(*isolation.Support)) Engine {
	t.Helper()
	support := fake.HoldsAll(name)
	if change != nil {
		change(&support)
	}
	return Engine{Engine: fake.New(fake.Config{Name: name, Support: &support}), Support: support}
}

func TestChoose_TakesTheStrongestThatHolds(t *testing.T) {
	lacks := func(l sandbox.Layer) func(*isolation.Support) {
		return func(s *isolation.Support) { *s = fake.Without(*s, l, "why", "mend it") }
	}
	broken := func(s *isolation.Support) { s.Usable, s.Reason = false, "no python" }
	require := []sandbox.Layer{sandbox.LayerNetNS}
	for _, c := range []struct {
		name    string
		engines []Engine
		asked   string
		wanted  []sandbox.Layer
		refused map[string]string
		own     map[string][]sandbox.Layer
		want    string
		kind    sandbox.Kind
	}{
		{"first of the order", []Engine{probed(t, "b", nil), probed(t, "a", nil)}, "", nil, nil, nil, "a", ""},
		{"next when one lacks a layer", []Engine{probed(t, "a", lacks(sandbox.LayerNetNS)), probed(t, "b", nil)}, "auto", nil, nil, nil, "b", ""},
		{"next when the request wants more", []Engine{probed(t, "a", lacks(sandbox.LayerLandlock)), probed(t, "b", nil)}, "", []sandbox.Layer{sandbox.LayerLandlock}, nil, nil, "b", ""},
		{"next when one is broken", []Engine{probed(t, "a", broken), probed(t, "b", nil)}, "", nil, nil, nil, "b", ""},
		{"never a refused one", []Engine{probed(t, "a", broken), probed(t, "b", nil)}, "", nil, map[string]string{"b": "allow it"}, nil, "", sandbox.KindUnavailable},
		{"the layer, not the breakage, when both", []Engine{probed(t, "a", broken), probed(t, "b", lacks(sandbox.LayerNetNS))}, "", nil, nil, nil, "", sandbox.KindDenied},
		{"asked for by name lacks a layer", []Engine{probed(t, "a", lacks(sandbox.LayerNetNS)), probed(t, "b", nil)}, "a", nil, nil, nil, "", sandbox.KindDenied},
		{"asked for by name, refused", []Engine{probed(t, "a", nil)}, "a", nil, map[string]string{"a": "allow it"}, nil, "", sandbox.KindDenied},
		{"own layers replace the common ones", []Engine{probed(t, "a", lacks(sandbox.LayerNetNS))}, "a", nil, nil, map[string][]sandbox.Layer{"a": {sandbox.LayerSeccomp}}, "a", ""},
		{"none at all", nil, "", nil, nil, nil, "", sandbox.KindUnavailable},
		{"not in the order", []Engine{probed(t, "c", nil)}, "", nil, nil, nil, "", sandbox.KindUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.EngineOrder, cfg.Require, cfg.Refused, cfg.RequireByEngine = []string{"a", "b"}, require, c.refused, c.own
			p := planner{cfg: cfg, engines: newEngineList(c.engines)}
			e, _, err := p.choose(c.asked, c.wanted, &held{})
			if c.kind != "" {
				if err == nil || sandbox.KindOf(err) != c.kind {
					t.Errorf("error %v, want %s", err, c.kind)
				}
				return
			}
			if err != nil || e.Name() != c.want {
				t.Errorf("engine %v, %v, want %s", e, err, c.want)
			}
		})
	}
}

func TestPlan_ListsDefaultsThatAreNotEnforced(t *testing.T) {
	e := probed(t, "a", func(s *isolation.Support) {
		s.Limits["workspace_inodes"], s.Limits["output_stop_bytes"] = isolation.Unsupported, isolation.Unsupported
		delete(s.Limits, "cpu_ms") // silence is a no
	})
	cfg := testConfig()
	cfg.EngineOrder = []string{"a"}
	p := planner{cfg: cfg, engines: newEngineList([]Engine{e})}
	text := ""
	got, err := p.plan(&sandbox.Spec{Program: &text})
	if err != nil || !slices.Equal(got.unenforced, []string{"cpu_ms", "workspace_inodes"}) {
		t.Errorf("unenforced %v, %v", got, err)
	}
	for _, l := range []sandbox.Limits{{CPUMillis: 5}, {OutputStopBytes: 5}} {
		if _, err := p.plan(&sandbox.Spec{Program: &text, Limits: l}); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("limits %+v: %v", l, err)
		}
	}
}
