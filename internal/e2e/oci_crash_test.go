package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// TestOCI_CrashWhileContainersStart kills the daemon while its runtimes are at
// work, which they go on with when it is dead: what they make then, the next
// daemon must still find.
func TestOCI_CrashWhileContainersStart(t *testing.T) {
	testenv.Cgroup(t)
	for runtime, rounds := range map[string]int{"runc": 3, "crun": 3, "runsc": 1} {
		t.Run(runtime, func(t *testing.T) {
			testenv.Binary(t, runtime)
			parent := fmt.Sprintf("/sandboxd-e2e-%d-crash", os.Getpid())
			p := newPlace(t, fmt.Sprintf("[engines]\nrequire_layers = []\n[engine.native]\nready = 0\n[engine.oci]\n"+
				"runtimes = [%q]\nready = 4\ncgroup_parent = %q\n", runtime, parent)) // runsc lacks some layers
			mountsBefore := mountsNow(t)
			for round := range rounds {
				crash(t, p, runtime, time.Duration(100+250*round)*time.Millisecond)
				eventually(t, "containers", func() []string { return containersOf(p, runtime, parent+"-"+runtime) })
				eventually(t, "mounts", func() []string { return names(newSince(mountsNow(t), mountsBefore)) })
			}
		})
	}
}

// crash kills a daemon in the middle of a crowd of runs, and has another serve one
// in its place and stop.
func crash(t *testing.T, p place, runtime string, after time.Duration) {
	t.Helper()
	first := p.start(t)
	spec := solved()
	spec.Engine = runtime
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 3 { // what became of them is not told
				_, _ = first.client.Run(context.WithoutCancel(t.Context()), spec)
			}
		})
	}
	time.Sleep(after)
	first.kill(t)
	second := p.start(t)
	clients.Wait()
	if r := second.run(t, spec); !r.Passed || r.Engine != runtime {
		t.Errorf("after %s: engine %s, verdict %s\n%s", after, r.Engine, r.Verdict, r.Summary)
	}
	second.stop(t)
}

// containersOf lists what there is of a runtime's containers: state, bundles,
// cgroups, and processes that name the daemon's place.
func containersOf(p place, runtime, parent string) []string {
	var out []string
	for _, pattern := range []string{
		filepath.Join(p.state, "oci", runtime, "state", "*"), filepath.Join(p.state, "oci", runtime, "bundles", "*"),
		"/sys/fs/cgroup" + parent + "/sandbox-*", "/sys/fs/cgroup/*" + parent + "/sandbox-*",
	} {
		found, _ := filepath.Glob(pattern)
		out = append(out, found...)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		args, _ := os.ReadFile(path) // gone meanwhile
		if strings.Contains(string(args), p.state+"/oci") {
			out = append(out, path+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}
