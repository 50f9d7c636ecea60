package native_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// loaded runs a program that tells whether the interpreter had imported decimal
// before it.
func loaded(t *testing.T, e *native.Engine, id string, mentions func(string) bool) bool {
	t.Helper()
	limits := sandbox.DefaultLimits()
	sb, err := e.Create(t.Context(), isolation.Plan{ID: id, Limits: limits, Mentions: mentions})
	if err != nil {
		t.Fatal(err)
	}
	text := "import sys\nprint('decimal' in sys.modules)\n"
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits)).Run()
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	return end.Stdout.Text() == "True\n"
}

func awaits(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

// TestPreloadSet_IsBootedForThoseWhoComeAfter: nobody waits for a set to boot, and
// only programs that name its module get it.
func TestPreloadSet_IsBootedForThoseWhoComeAfter(t *testing.T) {
	e := newEngineLike(t, native.Config{Ready: 2, PreloadSets: []string{"decimal"}})
	names := func(module string) bool { return module == "decimal" }
	if loaded(t, e, "first", names) {
		t.Error("the first run waited for its preload set")
	}
	awaits(t, "the set is up", func() bool { return e.Awake("decimal") })
	if !loaded(t, e, "second", names) {
		t.Error("the second run did not get its preload set")
	}
	if loaded(t, e, "other", func(string) bool { return false }) || loaded(t, e, "probe", nil) {
		t.Error("a run got a preload set that it does not name")
	}
}

// TestPreloadSet_IsEvictedWhenUnused, but not from under a run.
func TestPreloadSet_IsEvictedWhenUnused(t *testing.T) {
	e := newEngineLike(t, native.Config{Ready: 2, PreloadSets: []string{"decimal"}})
	e.SetEviction(2*time.Second, 10*time.Millisecond) // long enough to be seen up
	names := func(string) bool { return true }
	loaded(t, e, "first", names)
	awaits(t, "the set is up", func() bool { return e.Awake("decimal") })
	limits := sandbox.DefaultLimits()
	held, err := e.Create(t.Context(), isolation.Plan{ID: "held", Limits: limits, Mentions: names})
	if err != nil {
		t.Fatal(err)
	}
	awaits(t, "the set is evicted", func() bool { return !e.Awake("decimal") })
	time.Sleep(50 * time.Millisecond)
	text := "print('alive')"
	end, err := held.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits)).Run()
	if err != nil || end.Stdout.Text() != "alive\n" {
		t.Errorf("after the eviction: %v, %q", err, end.Stdout.Text())
	}
	if err := held.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	loaded(t, e, "again", names) // boots it once more
	awaits(t, "the set is up again", func() bool { return e.Awake("decimal") })
}

// TestFamilies_AreFew: one more than there may be has that go which was not used
// for longest.
func TestFamilies_AreFew(t *testing.T) {
	e := newEngineLike(t, native.Config{PreloadSets: []string{"decimal", "fractions"}})
	e.SetMostFamilies(1)
	e.SetEviction(time.Hour, 10*time.Millisecond)
	for _, module := range []string{"decimal", "fractions", "decimal"} {
		loaded(t, e, "names-"+module, func(name string) bool { return name == module })
		awaits(t, module+" is up", func() bool { return e.Awake(module) })
		for _, other := range []string{"decimal", "fractions"} {
			if other != module && e.Awake(other) {
				t.Errorf("%s is up beside %s", other, module)
			}
		}
	}
}

// TestPreload_MissingModuleIsNoFailure: what the image lacks is missing to its
// programs too.
func TestPreload_MissingModuleIsNoFailure(t *testing.T) {
	e := newEngineLike(t, native.Config{Preload: []string{"no_such_module", "json"}})
	end, err := runOnce(t.Context(), e, "missing", "import sys; print('json' in sys.modules)")
	if err != nil || end.Stdout.Text() != "True\n" {
		t.Errorf("%v, %q", err, end.Stdout.Text())
	}
}

// TestPool_GrowsWithDemandWithinItsBudget.
func TestPool_GrowsWithDemandWithinItsBudget(t *testing.T) {
	e := newEngineLike(t, native.Config{Ready: 24, ReadyBytes: 48 << 20}) // room for 12
	fill(t, e, 8)
	for round := range 6 {
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() {
				if _, err := runOnce(t.Context(), e, fmt.Sprintf("burst-%d-%d", round, i), "pass"); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
	awaits(t, "the pool has grown", func() bool { return e.ReadyCount() == 12 })
	stats := e.Stats()
	if stats.Ready != 12 || stats.Taken == 0 || stats.Dry == 0 || stats.Zygotes != 1 {
		t.Errorf("%+v", stats)
	}
	if stats.ReadyBytes < 512<<10 || stats.ReadyBytes > 6<<20 {
		t.Errorf("a ready sandbox holds %d bytes", stats.ReadyBytes)
	}
	if stats.CPUSeconds <= 0 {
		t.Errorf("%v s of CPU", stats.CPUSeconds)
	}
	awaits(t, "the pool is small again", func() bool { return e.ReadyCount() == 8 })
}

// TestMaking_TellsWhatWasDoneOnTheWay.
func TestMaking_TellsWhatWasDoneOnTheWay(t *testing.T) {
	e := newEngineLike(t, native.Config{Ready: 2})
	fill(t, e, 2)
	for _, c := range []struct {
		limits sandbox.Limits
		ready  bool
	}{{sandbox.Limits{}, true}, {sandbox.Limits{WorkspaceBytes: 1 << 20}, false}} {
		limits, _, err := c.limits.Plan(sandbox.DefaultLimits(), sandbox.DefaultCeilings())
		if err != nil {
			t.Fatal(err)
		}
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "making", Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		m := sb.Making()
		if m.Ready != c.ready || (m.Fork > 0) == c.ready || (m.Isolate > 0) == c.ready || m.Pool < 0 {
			t.Errorf("%+v", m)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestZygote_KeepsItsEnvironmentToItself.
func TestZygote_KeepsItsEnvironmentToItself(t *testing.T) {
	end, err := runOnce(t.Context(), newEngine(t), "env", "import os, ctypes\nprint(sorted(os.environ), ctypes.CDLL(None).getenv(b'LD_BIND_NOW'))")
	if err != nil {
		t.Fatal(err)
	}
	if got := end.Stdout.Text(); strings.Contains(got, "BIND") || strings.Contains(got, "THREADS") || !strings.Contains(got, " 0\n") {
		t.Error(got)
	}
}
