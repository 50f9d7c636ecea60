package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// withPool is the configuration of daemons that are killed here.
const withPool = "[engine.native]\nready = 8\n"

// backAfter is how long a daemon may serve nobody after a part of it was killed.
const backAfter = time.Second

// clients are eight callers that run the mixture until they are stopped. Every
// answer is judged: a verdict is right, or there is none.
type clients struct {
	t        *testing.T
	client   *apiclient.Client
	mayBreak atomic.Bool // the daemon may be gone: connections break
	stopped  atomic.Bool
	next     atomic.Int64
	done     sync.WaitGroup

	mu     sync.Mutex
	right  []served
	errors []error // of ours: unavailable, internal
}

// served is when a run was sent and when its right answer came.
type served struct{ sent, answered time.Time }

const clientCount = 8

func startClients(t *testing.T, p place) *clients {
	c := &clients{t: t, client: apiclient.New(p.socket)}
	for range clientCount {
		c.done.Go(func() {
			for !c.stopped.Load() {
				c.runOne(int(c.next.Add(1)))
			}
		})
	}
	t.Cleanup(c.stop)
	return c
}

func (c *clients) stop() {
	c.stopped.Store(true)
	c.done.Wait()
	c.client.Close()
}

func (c *clients) runOne(n int) {
	want := mixture(n)
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), time.Minute)
	defer cancel()
	res, err := c.client.Run(ctx, want.spec)
	var problem *apiclient.Problem
	if err != nil && !errors.As(err, &problem) && c.mayBreak.Load() {
		time.Sleep(5 * time.Millisecond) // nobody is there
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && (res.Verdict != want.verdict || [2]int{res.PassedCount, res.TotalCount} != want.counts):
		c.t.Errorf("run %d: a wrong verdict: %s (%s), %d of %d; want %s, %v", n, res.Verdict, res.Reason, res.PassedCount, res.TotalCount, want.verdict, want.counts)
	case err == nil && n%5 == 4 && res.Stdout != fmt.Sprintf("run %d\n", n):
		c.t.Errorf("run %d got the output %q", n, res.Stdout)
	case err == nil:
		c.right = append(c.right, served{sent, time.Now()})
	case problem != nil && (problem.Code == sandbox.KindUnavailable || problem.Code == sandbox.KindInternal):
		c.errors = append(c.errors, err)
	default:
		c.t.Errorf("run %d: %v", n, err)
	}
}

// waitRight waits until n more runs were answered right.
func (c *clients) waitRight(n int) {
	c.t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.right)
	}
	goal := count() + n
	for deadline := time.Now().Add(30 * time.Second); count() < goal; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%d runs are missing after half a minute", goal-count())
		}
	}
}

// firstAfter is how long after a moment a run that was sent since then was
// answered right, when one was.
func (c *clients) firstAfter(moment time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.right {
		if s.sent.After(moment) {
			return s.answered.Sub(moment), true
		}
	}
	return 0, false
}

// fewErrors checks that no more runs were lost than were in flight.
func (c *clients) fewErrors(most int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errors) > most {
		c.t.Errorf("%d runs ended with an error, at most %d were in flight: %v", len(c.errors), most, c.errors[:min(3, len(c.errors))])
	}
	c.t.Logf("%d runs right, %d with an error of ours", len(c.right), len(c.errors))
}

// zygote is the daemon's only child.
func (d *daemon) zygote(t *testing.T) process {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		for p := range family(t, d.cmd.Process.Pid) {
			if parent, _, ok := statOf(p.pid); ok && parent == d.cmd.Process.Pid {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the daemon has no child")
		}
	}
}

// sleepers are the first processes of sandboxes, ready ones and those in use.
func (d *daemon) sleepers(t *testing.T) []process {
	t.Helper()
	var found []process
	for p := range family(t, d.cmd.Process.Pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if _, rest, ok := strings.Cut(string(text), ") "); err == nil && ok && rest[0] == 'T' {
			found = append(found, p)
		}
	}
	return found
}

func (p process) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

// traces is what a daemon could leave.
type traces struct {
	mounts, groups map[string]bool
	processes      map[process]bool
}

func (d *daemon) traces(t *testing.T) traces {
	t.Helper()
	family := family(t, d.cmd.Process.Pid)
	return traces{processes: family, groups: cgroupsOf(t, family)}
}

func (old traces) gone(t *testing.T) {
	t.Helper()
	eventually(t, "processes", func() []string { return stillAlive(old.processes) })
	eventually(t, "cgroups", func() []string { return existing(old.groups, "") })
	eventually(t, "mounts", func() []string { return names(newSince(mountsNow(t), old.mounts)) })
}

// stopWithoutTrace stops the daemon; mounts are those from before its start.
func (d *daemon) stopWithoutTrace(t *testing.T, mounts map[string]bool) {
	t.Helper()
	last := d.traces(t)
	last.mounts = mounts
	d.stop(t)
	last.gone(t)
}

// TestKill_Zygote: its sandboxes die with it. Runs that had not begun are tried
// again, the others end with an error; another zygote serves within a second.
func TestKill_Zygote(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, withPool)
	mounts := mountsNow(t)
	d := p.start(t)
	d.run(t, solved())
	c := startClients(t, p)
	const kills = 4
	var left []traces
	late := 0
	for range kills {
		c.waitRight(40)
		left = append(left, d.traces(t))
		zygote := d.zygote(t)
		zygote.kill(t)
		killed := time.Now()
		c.waitRight(20)
		took, ok := c.firstAfter(killed)
		t.Logf("served again %s after the zygote's end", took)
		if !ok {
			t.Error("nobody was served again")
		}
		if took > backAfter {
			late++
		}
		if now := d.zygote(t); now == zygote {
			t.Error("the zygote is the old one")
		}
	}
	c.stop()
	if late > 1 { // one may have met other work on the machine
		t.Errorf("%d of %d times it took longer than %s", late, kills, backAfter)
	}
	c.fewErrors(kills * clientCount)
	for _, old := range left { // while the daemon lives: it cleans up by itself
		eventually(t, "processes of an old zygote", func() []string { return stillAlive(old.processes) })
	}
	d.stopWithoutTrace(t, mounts)
	for _, old := range left {
		old.mounts = mounts
		old.gone(t)
	}
}

// TestKill_ReadySandboxes: who dies while it waits, or before its run has begun,
// is nobody's verdict; who dies later is one run's error.
func TestKill_ReadySandboxes(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, withPool)
	mounts := mountsNow(t)
	d := p.start(t)
	d.run(t, solved())
	c := startClients(t, p)
	kills := 0
	for range 12 {
		c.waitRight(10)
		if found := d.sleepers(t); len(found) > 0 {
			found[0].kill(t)
			kills++
			killed := time.Now()
			c.waitRight(clientCount + 1)
			if took, ok := c.firstAfter(killed); !ok || took > backAfter {
				t.Errorf("served again %s after a sandbox's end", took)
			}
		}
	}
	c.stop()
	if kills == 0 {
		t.Error("nobody was killed: this test shows nothing")
	}
	c.fewErrors(kills)
	d.stopWithoutTrace(t, mounts)
}

// TestKill_DaemonUnderLoad: connections break, no verdict is wrong, and another
// daemon in its place serves the same callers and finds nothing in its way.
func TestKill_DaemonUnderLoad(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, withPool)
	mounts := mountsNow(t)
	d := p.start(t)
	d.run(t, solved())
	files := filesIn(t, p.dir)
	c := startClients(t, p)
	best := time.Hour
	for range 3 {
		c.waitRight(40)
		left := d.traces(t)
		c.mayBreak.Store(true)
		d.kill(t)
		began := time.Now()
		d = p.start(t)
		c.waitRight(20)
		took, _ := c.firstAfter(began)
		t.Logf("served again %s after the next daemon's start", took)
		best = min(best, took)
		c.mayBreak.Store(false)
		eventually(t, "processes of the old daemon", func() []string { return stillAlive(left.processes) })
		eventually(t, "cgroups of old runs", func() []string { return existingBefore(left.groups, d.traces(t).groups) })
	}
	if best > backAfter { // of three, since a whole start depends on what else the machine does
		t.Errorf("served again %s after the next daemon's start", best)
	}
	c.stop()
	c.fewErrors(0)
	d.stopWithoutTrace(t, mounts)
	delete(files, p.socket)
	eventually(t, "files", func() []string { return names(newSince(filesIn(t, p.dir), files)) })
}

// existingBefore lists groups of a dead daemon that no group of the live one has
// replaced under the same name.
func existingBefore(old, now map[string]bool) []string {
	left := map[string]bool{}
	for path := range old {
		if !now[path] {
			left[path] = true
		}
	}
	return existing(left, "")
}
