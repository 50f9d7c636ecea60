package isolation

import (
	"fmt"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/sandbox"
)

// CgroupReports are the layers that cgroups hold, by what their probe found. A
// layer with two controllers needs both.
func CgroupReports(findings []cgroup.Finding, version int) []sandbox.LayerReport {
	layers := []struct {
		layer       sandbox.Layer
		controllers []string
	}{
		{sandbox.LayerCgroupMemory, []string{"memory"}},
		{sandbox.LayerCgroupPIDs, []string{"pids"}},
		{sandbox.LayerCgroupCPU, []string{"cpuacct", "cpu"}},
	}
	byName := map[string]cgroup.Finding{}
	for _, f := range findings {
		byName[f.Controller] = f
	}
	var out []sandbox.LayerReport
	for _, l := range layers {
		r := sandbox.LayerReport{Layer: l.layer, State: sandbox.LayerHeld, Reason: fmt.Sprintf("cgroup v%d", version)}
		for _, name := range l.controllers {
			if f := byName[name]; !f.Held && r.State == sandbox.LayerHeld {
				r = sandbox.LayerReport{Layer: l.layer, State: sandbox.LayerMissing, Reason: f.Reason, Mend: f.Mend}
			}
		}
		out = append(out, r)
	}
	return out
}
