package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// growthCap is how much the daemon's memory may grow by any amount of work.
const growthCap = 20 << 20

// expectation is a run with its true verdict.
type expectation struct {
	spec    sandbox.Spec
	verdict sandbox.Verdict
	counts  [2]int
}

// mixture gives the n-th run: each has its own numbers, so that an answer that
// went to the wrong caller shows.
func mixture(n int) expectation {
	solution := fmt.Sprintf("def f(x):\n    return x + %d\n", n)
	switch n % 5 {
	case 0:
		return expectation{testsSpec(solution, fmt.Sprintf("assert f(1) == %d\nassert f(2) == %d\n", n+1, n+2)), sandbox.Passed, [2]int{2, 2}}
	case 1:
		return expectation{testsSpec(solution, fmt.Sprintf("assert f(1) == %d\nassert f(2) == 0, 'run %d'\n", n+1, n)), sandbox.Failed, [2]int{1, 2}}
	case 2:
		return expectation{testsSpec(solution, "assert f(1)\nf(None)\n"), sandbox.Raised, [2]int{1, 1}}
	case 3:
		return expectation{testsSpec("import os\n"+solution, "f(1)\nos._exit(0)\n"), sandbox.Exited, [2]int{0, 0}}
	}
	return expectation{programSpec(fmt.Sprintf("print('run %d')\n", n)), sandbox.Passed, [2]int{0, 0}}
}

// TestLoad_TwoHundredRuns runs 200 runs, 16 at once.
func TestLoad_TwoHundredRuns(t *testing.T) {
	testenv.Cgroup(t)
	// Without a pool, which grows with the load and is TestSoak's.
	d := newPlace(t, "[engine.native]\nready = 0\n").start(t)
	d.batch(t, 32) // what the daemon keeps between runs is made now
	family0, mounts0, files0 := family(t, d.cmd.Process.Pid), mountsNow(t), filesIn(t, d.dir)
	groups0 := cgroupsOf(t, family0)
	rss := d.memory(t, "VmRSS")

	begin := time.Now()
	d.batch(t, 200)
	t.Logf("200 runs, 16 at once, in %s", time.Since(begin).Round(time.Millisecond))

	if growth := d.memory(t, "VmRSS") - rss; growth > growthCap {
		t.Errorf("the daemon grew by %d MiB", growth>>20)
	}
	eventually(t, "processes", func() []string {
		if now := family(t, d.cmd.Process.Pid); len(now) > len(family0) {
			return stillAlive(now)
		}
		return nil
	})
	eventually(t, "cgroups", func() []string {
		return names(newSince(cgroupsOf(t, family(t, d.cmd.Process.Pid)), groups0))
	})
	eventually(t, "mounts", func() []string { return names(newSince(mountsNow(t), mounts0)) })
	eventually(t, "files", func() []string { return names(newSince(filesIn(t, d.dir), files0)) })
}

// batch runs n runs of the mixture, 16 at once.
func (d *daemon) batch(t *testing.T, n int) {
	t.Helper()
	numbers := make(chan int)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for i := range numbers {
				d.judge(t, i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	clients.Wait()
}

func (d *daemon) judge(t *testing.T, n int) {
	want := mixture(n)
	res, err := d.client.Run(t.Context(), want.spec)
	switch {
	case err != nil:
		t.Errorf("run %d: %v", n, err)
	case res.Verdict != want.verdict || [2]int{res.PassedCount, res.TotalCount} != want.counts:
		t.Errorf("run %d: %s, %d of %d; want %s, %v\n%s", n, res.Verdict, res.PassedCount, res.TotalCount, want.verdict, want.counts, res.Summary)
	case n%5 == 1 && (len(res.FailedAssertions) != 1 || res.FailedAssertions[0] != fmt.Sprintf("run %d", n)):
		t.Errorf("run %d got %q", n, res.FailedAssertions)
	case n%5 == 4 && res.Stdout != fmt.Sprintf("run %d\n", n):
		t.Errorf("run %d got the output %q", n, res.Stdout)
	}
}

// TestFlood_GigabyteOfOutput has the daemon count a gigabyte and keep none of it.
func TestFlood_GigabyteOfOutput(t *testing.T) {
	testenv.Cgroup(t)
	d := newPlace(t, "").start(t)
	d.batch(t, 16)
	d.resetPeak(t)
	before := d.memory(t, "VmRSS")

	spec := programSpec("import os\nchunk = b'x' * 65535 + b'\\n'\nfor _ in range(16384):\n    os.write(1, chunk)\n")
	spec.Limits = sandbox.Limits{WallMillis: 120_000, CPUMillis: 100_000}
	res := d.run(t, spec)
	if res.Verdict != sandbox.Passed || !res.StdoutTruncated || res.Usage.StdoutBytes != 1<<30 {
		t.Errorf("%s, truncated %v, %d bytes counted\n%s", res.Verdict, res.StdoutTruncated, res.Usage.StdoutBytes, res.Summary)
	}
	if n := int64(len(res.Stdout)); n > res.Limits.OutputBytes+1024 {
		t.Errorf("%d bytes of output came back", n)
	}
	if growth := d.memory(t, "VmHWM") - before; growth > growthCap {
		t.Errorf("the daemon grew by %d MiB", growth>>20)
	}
}

// TestQueue_FullIsRefusedAtOnce fills the one place and the one seat of a queue.
func TestQueue_FullIsRefusedAtOnce(t *testing.T) {
	testenv.Cgroup(t)
	d := newPlace(t, "[admission]\nmax_concurrent = 1\nqueue_length = 1\n").start(t)
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			if res, err := d.client.Run(t.Context(), programSpec("import time\ntime.sleep(3)\n")); err != nil || res.Verdict != sandbox.Passed {
				t.Errorf("a run that was admitted ended as %s, %v", res.Verdict, err)
			}
		})
	}
	eventually(t, "runs not yet admitted", func() []string {
		if live, err := d.client.ListRuns(t.Context()); err != nil || len(live) < 2 {
			return []string{fmt.Sprint(len(live), " live ", err)}
		}
		return nil
	})
	begin := time.Now()
	_, err := d.client.Run(t.Context(), solved())
	var problem *apiclient.Problem
	if !errors.As(err, &problem) || problem.Status != 429 || problem.Code != sandbox.KindExhausted || problem.RetryAfter <= 0 {
		t.Errorf("a full queue answered %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the refusal took %s", took)
	}
	clients.Wait()
}
