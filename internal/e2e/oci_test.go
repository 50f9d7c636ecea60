package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// TestOCI_OutlivesItsDaemon: runs of a runtime's engine are judged as any, and
// what a killed daemon left of them is gone when the next one serves.
func TestOCI_OutlivesItsDaemon(t *testing.T) {
	testenv.Cgroup(t)
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			testenv.Binary(t, runtime)
			p := newPlace(t, fmt.Sprintf("[engine.native]\nready = 0\n[engine.oci]\nruntimes = [%q]\nready = 2\n", runtime))
			d := p.start(t)
			spec := solved()
			spec.Engine = runtime
			if r := d.run(t, spec); !r.Passed || r.Engine != runtime {
				t.Fatalf("engine %s, verdict %s\n%s", r.Engine, r.Verdict, r.Summary)
			}
			d.kill(t)
			d = p.start(t)
			state := filepath.Join(p.state, "oci", runtime)
			eventually(t, "containers of the daemon before", func() []string {
				var left []string
				for _, below := range []string{"state", "bundles"} {
					entries, _ := os.ReadDir(filepath.Join(state, below))
					for _, e := range entries {
						left = append(left, below+"/"+e.Name())
					}
				}
				return left
			})
			if r := d.run(t, spec); !r.Passed {
				t.Errorf("verdict %s\n%s", r.Verdict, r.Summary)
			}
		})
	}
}
