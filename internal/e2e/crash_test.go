package e2e

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestCrash_RestartLeavesNothing kills the daemon in the middle of 20 runs and
// looks for anything of it once another has started in its place.
func TestCrash_RestartLeavesNothing(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, "[admission]\nmax_concurrent = 20\n")
	mountsBefore := mountsNow(t)
	first := p.start(t)
	first.run(t, solved())
	filesIdle := filesIn(t, p.dir)

	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			// The connection breaks; what became of the run is not told.
			_, _ = first.client.Run(context.WithoutCancel(t.Context()), programSpec("import time\nopen('f', 'w').write('x')\nprint('up', flush=True)\ntime.sleep(14)\n"))
		})
	}
	first.waitLive(t, 20)
	processes := family(t, first.cmd.Process.Pid)
	groups := cgroupsOf(t, processes)
	if len(processes) < 20 || len(groups) < 20 {
		t.Errorf("only %d processes and %d cgroups in the middle of 20 runs", len(processes), len(groups))
	}
	first.kill(t)
	clients.Wait()

	second := p.start(t)
	eventually(t, "processes of the old daemon", func() []string { return stillAlive(processes) })
	eventually(t, "cgroups of old runs", func() []string { return existing(groups, "/run-") })
	if res := second.run(t, solved()); !res.Passed {
		t.Errorf("after the restart: %s", res.Summary)
	}
	second.stop(t)
	eventually(t, "cgroups", func() []string { return existing(groups, "") })
	eventually(t, "mounts", func() []string { return names(newSince(mountsNow(t), mountsBefore)) })
	eventually(t, "files", func() []string { return names(newSince(filesIn(t, p.dir), filesIdle)) })
}

// waitLive waits until n runs are past their setup.
func (d *daemon) waitLive(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		live, err := d.client.ListRuns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, r := range live {
			if r.State == "running" {
				running++
			}
		}
		if running == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d runs are running: %+v", running, n, live)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestStop_DrainsAndLeavesNothing stops the daemon while runs are live: they end
// with their own verdicts, new ones are refused, nothing is left.
func TestStop_DrainsAndLeavesNothing(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, "")
	mountsBefore := mountsNow(t)
	d := p.start(t)
	results := make(chan sandbox.Result, 4)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			res, err := d.client.Run(t.Context(), programSpec("import time\ntime.sleep(2)\nprint('done')\n"))
			if err != nil {
				t.Errorf("a live run was lost: %v", err)
				return
			}
			results <- res
		})
	}
	d.waitLive(t, 4)
	processes := family(t, d.cmd.Process.Pid)
	groups := cgroupsOf(t, processes)
	d.signal(t, syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	if _, err := d.client.Run(t.Context(), solved()); err == nil {
		t.Error("a stopping daemon took a new run")
	}
	clients.Wait()
	close(results)
	for res := range results {
		if res.Verdict != sandbox.Passed || res.Stdout != "done\n" {
			t.Errorf("a live run ended as %s with %q", res.Verdict, res.Stdout)
		}
	}
	d.stop(t)
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	eventually(t, "processes", func() []string { return stillAlive(processes) })
	eventually(t, "cgroups", func() []string { return existing(groups, "") })
	eventually(t, "mounts", func() []string { return names(newSince(mountsNow(t), mountsBefore)) })
	eventually(t, "socket", func() []string {
		if filesIn(t, p.dir)[p.socket] {
			return []string{p.socket}
		}
		return nil
	})
}
