package native_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

const (
	benchSolution = "class Total:\n    def __init__(self):\n        self.n = 0\n    def add(self, x):\n        self.n += x\n        return self.n\ndef square(x):\n    return x * x\ndef pairs(xs):\n    return list(zip(xs, xs[1:]))\n"
	benchTests    = "assert square(4) == 16\nassert Total().add(3) == 3\nassert pairs([1, 2, 3]) == [(1, 2), (2, 3)]\n"
)

func benchRun(ctx context.Context, e isolation.Engine, id string) error {
	solution, tests, limits := benchSolution, benchTests, sandbox.DefaultLimits()
	sb, err := e.Create(ctx, isolation.Plan{ID: id, Limits: limits})
	if err != nil {
		return err
	}
	req := pyrunner.NewRequest(&sandbox.Spec{Solution: &solution, Tests: &tests}, sandbox.ModeTests, limits)
	end, err := sb.Converse(req).Run()
	if err == nil && end.Report.Passed != 3 {
		err = fmt.Errorf("%d assertions passed", end.Report.Passed)
	}
	if err == nil {
		_, err = sb.Wait(ctx)
	}
	return errors.Join(err, sb.Destroy(ctx))
}

// BenchmarkRun is one run after another: fresh makes each sandbox when it is
// asked for, pooled takes ready ones.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name  string
		ready int
	}{{"fresh", 0}, {"pooled", 16}} {
		b.Run(c.name, func(b *testing.B) {
			e := newEngineWithPool(b, c.ready)
			if err := benchRun(b.Context(), e, "warm"); err != nil {
				b.Fatal(err)
			}
			before := guestCPU(b)
			b.ResetTimer()
			for i := range b.N {
				if err := benchRun(b.Context(), e, fmt.Sprintf("bench-%d", i)); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(guestCPU(b)-before)/1e3/float64(b.N), "guest-cpu-us/op")
		})
	}
}

// guestCPU is what the engine's zygote and sandboxes have used, in ns. It is
// measured where CPU accounting has a hierarchy of its own (v1).
func guestCPU(b *testing.B) int64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/sys/fs/cgroup/cpuacct/sandboxd-test-%d/cpuacct.usage", os.Getpid()))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
