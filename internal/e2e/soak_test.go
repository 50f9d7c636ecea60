package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// slowEnv set to 1 asks for the long form of a test.
const slowEnv = "SANDBOXD_SLOW"

// The daemon's memory after any number of runs, and its growth from the warm-up
// on.
const (
	rssCap    = 60 << 20
	rssGrowth = 8 << 20
)

// TestSoak_DaemonStaysFlat: whatever a run needs is given back.
func TestSoak_DaemonStaysFlat(t *testing.T) {
	testenv.Cgroup(t)
	warm, all := 500, 1500
	if os.Getenv(slowEnv) == "1" {
		warm, all = 1000, 20_000
	}
	const ready = 8
	d := newPlace(t, fmt.Sprintf("[log]\nlevel = \"warn\"\n[engine.native]\nready = %d\n", ready)).start(t)
	d.soak(t, 0, warm)
	before := d.quiet(t, ready)
	began := time.Now()
	d.soak(t, warm, all)
	took := time.Since(began)
	after := d.quiet(t, ready)
	t.Logf("%d runs in %s; after %d: %v; after all: %v", all-warm, took.Round(time.Millisecond), warm, before, after)
	// Each ready sandbox has a cgroup, and twice as many are kept for the next ones;
	// they are made as they are first needed, which may be after the warm-up.
	if most := int64(3*ready + 3); after["cgroups"] > most { // the zygote's, the parent, one being made
		t.Errorf("%d cgroups, want at most %d", after["cgroups"], most)
	}
	made := max(0, after["cgroups"]-before["cgroups"])
	for name, slack := range map[string]int64{
		"descriptors": 4 + 8*made, // of connections of this test's own; files of groups
		"children":    0, "mounts": 0, "daemon mounts": 0, "files": 0,
		"threads":       3, // the runtime makes one when all others are in the kernel
		"go_threads":    3,
		"go_goroutines": 4,
		"RSS":           rssGrowth,
	} {
		if grown := after[name] - before[name]; grown > slack {
			t.Errorf("%s: %d after %d runs, %d after %d", name, before[name], warm, after[name], all)
		}
	}
	if after["RSS"] > rssCap {
		t.Errorf("the daemon has %d MiB", after["RSS"]>>20)
	}
}

// soak runs the mixture's numbers from to until, four at once.
func (d *daemon) soak(t *testing.T, from, until int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for n := next.Add(1); n <= int64(until) && !t.Failed(); n = next.Add(1) {
				d.judge(t, int(n))
			}
		})
	}
	callers.Wait()
}

// quiet waits until the pool is full and all else is done, and counts.
func (d *daemon) quiet(t *testing.T, ready int) map[string]int64 {
	t.Helper()
	d.client.Close() // idle connections
	var last map[string]int64
	same := 0
	for deadline := time.Now().Add(20 * time.Second); same < 10; time.Sleep(30 * time.Millisecond) {
		now := d.count(t)
		same++
		for _, name := range []string{"children", "descriptors", "cgroups"} {
			// One descriptor more or less is the connection that this was asked over.
			if last == nil || now[name] != last[name] && (name != "descriptors" || abs(now[name]-last[name]) > 1) {
				same = 0
			}
		}
		if now["children"] != int64(1+2*ready) { // zygote, first processes, programs
			same = 0
		}
		last = now
		if time.Now().After(deadline) {
			t.Errorf("the daemon does not come to rest: %v", now)
			break
		}
	}
	return last
}

func abs(n int64) int64 { return max(n, -n) }

func (d *daemon) count(t *testing.T) map[string]int64 {
	t.Helper()
	pid := d.cmd.Process.Pid
	metrics := d.metrics(t)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	relatives := family(t, pid)
	groups := map[string]bool{}
	for path := range cgroupsOf(t, relatives) { // one in each hierarchy
		groups[filepath.Base(path)] = true
	}
	return map[string]int64{
		"descriptors":   int64(len(entries)),
		"threads":       int64(len(threads)),
		"go_goroutines": metrics["go_goroutines"],
		"go_threads":    metrics["go_threads"],
		"mounts":        int64(len(mountsNow(t))),
		"daemon mounts": int64(strings.Count(string(mounts), "\n")),
		"cgroups":       int64(len(groups)),
		"children":      int64(len(relatives)),
		"files":         int64(len(filesIn(t, d.dir))),
		"RSS":           d.memory(t, "VmRSS"),
	}
}

// metrics are the daemon's own numbers, those without labels.
func (d *daemon) metrics(t *testing.T) map[string]int64 {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandboxd/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if f, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			found[name] = int64(f)
		}
	}
	if found["go_goroutines"] == 0 || found["go_threads"] == 0 {
		t.Fatalf("no goroutines and threads among the metrics: %v", found)
	}
	return found
}

// TestLoad_ManyClients has 256 callers at once. With the usual queue all are let
// in, four times each; with a short one some are sent away for a while. No
// other error comes, no wrong verdict, and nobody starves.
func TestLoad_ManyClients(t *testing.T) {
	testenv.Cgroup(t)
	const callers = 256
	for name, c := range map[string]struct {
		config    string
		each      int
		sentAway  bool
		maxMedian float64
	}{
		"usual queue": {"[log]\nlevel = \"warn\"\n[engine.native]\nready = 8\n", 4, false, 2},
		"short queue": {"[log]\nlevel = \"warn\"\n[admission]\nqueue_length = 128\n[engine.native]\nready = 8\n", 1, true, 6},
	} {
		t.Run(name, func(t *testing.T) {
			d := newPlace(t, c.config).start(t)
			d.run(t, solved())
			var away atomic.Int64
			took := make([]time.Duration, callers)
			began := time.Now()
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					client := apiclient.New(d.socket)
					defer client.Close()
					for i := range c.each {
						away.Add(insist(t, client, caller*c.each+i))
					}
					took[caller] = time.Since(began)
				})
			}
			all.Wait()
			slices.Sort(took)
			median, last := took[callers/2], took[callers-1]
			t.Logf("%d runs in %s, %d sent away; callers were done after %s (first), %s (median), %s (last)", callers*c.each, last.Round(time.Millisecond), away.Load(), took[0].Round(time.Millisecond), median.Round(time.Millisecond), last.Round(time.Millisecond))
			if c.sentAway != (away.Load() > 0) {
				t.Errorf("%d were sent away", away.Load())
			}
			if last.Seconds() > c.maxMedian*median.Seconds()+0.5 {
				t.Errorf("half of the callers were done after %s, the last after %s", median, last)
			}
			if res := d.run(t, solved()); !res.Passed {
				t.Errorf("afterwards: %s", res.Summary)
			}
		})
	}
}

// insist runs the n-th of the mixture, and comes back when it is sent away, as
// often as it is told to.
func insist(t *testing.T, client *apiclient.Client, n int) (sentAway int64) {
	want := mixture(n)
	for {
		res, err := client.Run(t.Context(), want.spec)
		var problem *apiclient.Problem
		switch {
		case errors.As(err, &problem) && problem.Status == http.StatusTooManyRequests && problem.Code == sandbox.KindExhausted && problem.RetryAfter > 0:
			sentAway++
			time.Sleep(problem.RetryAfter)
			continue
		case err != nil:
			t.Errorf("run %d: %v", n, err)
		case res.Verdict != want.verdict || [2]int{res.PassedCount, res.TotalCount} != want.counts:
			t.Errorf("run %d: %s, %d of %d; want %s, %v\n%s", n, res.Verdict, res.PassedCount, res.TotalCount, want.verdict, want.counts, res.Summary)
		}
		return sentAway
	}
}
