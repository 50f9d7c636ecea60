package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// layers are those that this engine is made of.
func layers() []sandbox.Layer {
	return []sandbox.Layer{
		sandbox.LayerProcessGroup, sandbox.LayerCleanEnv, sandbox.LayerScratch, sandbox.LayerRlimits,
		sandbox.LayerNoNewPrivs, sandbox.LayerNotDumpable, sandbox.LayerSeccomp,
		sandbox.LayerLandlock, sandbox.LayerDistinctUID,
	}
}

// Probe implements isolation.Engine: it runs the posture program once and keeps
// the answer.
func (e *Engine) Probe(ctx context.Context) (isolation.Support, error) {
	e.mu.Lock()
	kept := e.support
	e.mu.Unlock()
	if kept != nil {
		return *kept, nil
	}
	support := isolation.Support{
		Engine: Name, Limits: e.limitSupport(),
		Interpreter: "Python " + e.cfg.Image.PythonVersion + " at " + e.cfg.Python,
		Image:       e.cfg.Image.Name + " " + e.cfg.Image.Digest,
		Notes:       []string{"no namespaces and no cgroups: not a boundary for hostile code"},
	}
	seen, err := e.lookInside(ctx)
	if err != nil {
		support.Reason = err.Error()
		if errors.Is(err, fs.ErrPermission) {
			support.Reason += fmt.Sprintf(" (every directory above %s must be passable for other users: chmod o+x)", e.cfg.Dir)
		}
	}
	support.Usable = err == nil
	support.Layers = e.report(seen)
	e.mu.Lock()
	defer e.mu.Unlock()
	if support.Usable {
		e.support = &support
	}
	return support, nil
}

func (e *Engine) lookInside(ctx context.Context) ([]sandbox.LayerReport, error) {
	limits := sandbox.DefaultLimits()
	posture, err := isolation.Examine(ctx, limits, func(ctx context.Context) (isolation.Sandbox, error) {
		return e.create(ctx, isolation.Plan{ID: "probe-" + strconv.Itoa(os.Getpid()), Limits: limits}, nil)
	})
	if err != nil {
		return nil, err
	}
	seen := posture.Layers(map[string]string{})
	uid := sandbox.LayerReport{Layer: sandbox.LayerDistinctUID, State: sandbox.LayerHeld}
	if !e.root || len(posture.Status["Uid"]) == 0 || posture.Status["Uid"] == strconv.Itoa(os.Getuid()) {
		uid = sandbox.LayerReport{
			Layer: sandbox.LayerDistinctUID, State: sandbox.LayerMissing,
			Reason: "the daemon may not change user ids", Mend: "run the daemon as root",
		}
	}
	return append(seen, uid, isolation.LandlockReport(e.landlock)), nil
}

// report is what was seen of the engine's own layers; all others are no part of
// it.
func (e *Engine) report(seen []sandbox.LayerReport) []sandbox.LayerReport {
	var out []sandbox.LayerReport
	for _, l := range sandbox.Layers() {
		r := sandbox.LayerReport{Layer: l, State: sandbox.LayerNotApplicable, Reason: "engine process does not have it", Mend: "use engine native"}
		if slices.Contains(layers(), l) {
			r = sandbox.LayerReport{Layer: l, State: sandbox.LayerMissing, Reason: "no sandbox could be made"}
			for _, s := range seen {
				if s.Layer == l {
					r = s
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// limitSupport: what only a cgroup or a file system of its own could enforce is
// not supported.
func (e *Engine) limitSupport() map[string]isolation.LimitSupport {
	out := map[string]isolation.LimitSupport{}
	var l sandbox.Limits
	for _, f := range l.Fields() {
		out[f.Name] = isolation.Enforced
	}
	out["processes"] = isolation.Unsupported
	out["workspace_bytes"] = isolation.Unsupported
	out["workspace_inodes"] = isolation.Unsupported
	if !e.root { // RLIMIT_NPROC counts every process of the user
		out["threads"] = isolation.Unsupported
	}
	return out
}
