package runs

import (
	"log/slog"
	"testing"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

func benchManager(b *testing.B) *Manager {
	b.Helper()
	e := fake.New(fake.Config{})
	support, err := e.Probe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	cfg := testConfig()
	cfg.MaxConcurrent, cfg.QueueLength = 64, 1024
	m, err := New(cfg, []Engine{{Engine: e, Support: support}}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkPlan is a spec's way to a plan.
func BenchmarkPlan(b *testing.B) {
	m := benchManager(b)
	solution, tests := "def f(x):\n    return x\n", "assert f(1) == 1\n"
	spec := &sandbox.Spec{Solution: &solution, Tests: &tests, Limits: sandbox.Limits{MemoryBytes: 64 << 20}}
	b.ReportAllocs()
	for range b.N {
		if _, err := m.planner.plan(spec); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdmission is a slot taken and given back, with and without a line.
func BenchmarkAdmission(b *testing.B) {
	for name, slots := range map[string]int{"free": 1 << 20, "contended": 2} {
		b.Run(name, func(b *testing.B) {
			q := newQueue(slots, 1<<20)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					release, err := q.enter(b.Context(), tenants.Caller{})
					if err != nil {
						b.Error(err)
						return
					}
					release()
				}
			})
		})
	}
}

// BenchmarkRun is a whole run but for the engine: admission, plan, keeper,
// conversation, result.
func BenchmarkRun(b *testing.B) {
	m := benchManager(b)
	order := script("#fake print hi", sandbox.Limits{})
	b.ReportAllocs()
	for range b.N {
		if res, err := m.Run(b.Context(), tenants.Caller{}, order); err != nil || !res.Passed {
			b.Fatal(res.Verdict, err)
		}
	}
}
