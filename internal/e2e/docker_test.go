package e2e

import (
	"fmt"
	"testing"

	"github.com/sandboxd/sandboxd/isolation/enginetest"
)

// TestDocker_OutlivesItsDaemon: runs in a Docker Engine are judged as any, and what
// a killed daemon left there is gone when the next one serves.
func TestDocker_OutlivesItsDaemon(t *testing.T) {
	on := enginetest.StartDockerEngine(t, false)
	on.Import(t, "base")
	// Users of this Engine are not remapped.
	p := newPlace(t, fmt.Sprintf("[engines]\nrequire_layers = [\"distinct_uid\", \"pid_ns\", \"cgroup_memory\"]\n[engine.native]\nready = 0\n"+
		"[engine.docker]\nhost = \"unix://%s\"\nimage = \"base\"\nready = 2\n", on.Socket))
	spec := solved()
	spec.Engine = "docker"
	for _, end := range []func(*daemon, *testing.T){(*daemon).kill, (*daemon).stop} {
		d := p.start(t)
		eventually(t, "containers of the daemon before", func() []string { return on.Containers(t) })
		if r := d.run(t, spec); !r.Passed || r.Engine != "docker" {
			t.Fatalf("engine %s, verdict %s\n%s", r.Engine, r.Verdict, r.Summary)
		}
		end(d, t)
	}
	if left := on.Containers(t); len(left) > 0 {
		t.Errorf("left by a daemon that was stopped: %v", left)
	}
}
