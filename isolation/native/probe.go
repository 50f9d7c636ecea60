package native

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// probeTimeout bounds a probe, the zygote's boot included.
const probeTimeout = 90 * time.Second

// Probe implements isolation.Engine: it makes a sandbox, looks at it from
// inside and out, and removes it. The answer is kept.
func (e *Engine) Probe(ctx context.Context) (isolation.Support, error) {
	e.mu.Lock()
	kept := e.support
	e.mu.Unlock()
	if kept != nil {
		return *kept, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	support := isolation.Support{
		Engine: Name, Limits: limitSupport(),
		Interpreter: "Python " + e.cfg.Image.PythonVersion + " at " + e.cfg.Image.Interpreter,
		Image:       e.cfg.Image.Name + " " + e.cfg.Image.Digest,
		Images:      e.cfg.Images != nil,
	}
	cgroups, err := e.probeCgroups()
	if err != nil {
		return isolation.Support{}, err
	}
	seen, err := e.lookInside(ctx)
	if err != nil {
		support.Reason = err.Error()
		seen = isolation.NoneHeld(err, isolation.RootNeeded)
	}
	support.Usable = err == nil
	support.Layers = inOrder(append(cgroups, seen...))
	for _, l := range support.Layers {
		if l.State == sandbox.LayerMissing && l.Layer != sandbox.LayerLandlock && support.Reason == "" {
			support.Reason = fmt.Sprintf("layer %s: %s", l.Layer, l.Reason)
		}
	}
	if support.Usable {
		e.families.usual.pool.Filled(ctx) // what serves from the first run on
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if support.Usable { // a host that is mended is probed again
		e.support = &support
	}
	return support, nil
}

// lookInside makes one sandbox with default limits and runs the posture program
// in it.
func (e *Engine) lookInside(ctx context.Context) ([]sandbox.LayerReport, error) {
	limits := sandbox.DefaultLimits()
	posture, err := isolation.Examine(ctx, limits, func(ctx context.Context) (isolation.Sandbox, error) {
		return e.create(ctx, isolation.Plan{Limits: limits})
	})
	if err != nil {
		return nil, err
	}
	if err := e.hearAnEnd(ctx, limits); err != nil {
		return nil, err
	}
	reports := posture.Layers(isolation.OwnNamespaces())
	return append(reports, e.distinctUID(posture), isolation.LandlockReport(e.landlock)), nil
}

// hearAnEnd checks that this host tells how a program ended. The kernel shows an
// exit code of 0 to those who may not look at a process (proc_pid_stat(5)), and
// that would be a verdict.
func (e *Engine) hearAnEnd(ctx context.Context, l sandbox.Limits) error {
	const code = 7
	sb, err := e.create(ctx, isolation.Plan{Limits: l})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("import os; os._exit(%d)", code)
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
	if err = errors.Join(err, sb.Destroy(context.WithoutCancel(ctx))); err != nil {
		return fmt.Errorf("hear an end: %w", err)
	}
	if o := end.Outcome; !o.Exited || o.ExitCode != code {
		return &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "hear an end", Subject: "exit code",
			Err:  fmt.Errorf("a program that left with code %d was heard to end with code %d, signal %d", code, o.ExitCode, o.Signal),
			Mend: "give the daemon CAP_SYS_PTRACE, without which the kernel hides how others' processes ended",
		}
	}
	return nil
}

// distinctUID checks the program's id map against the ids that were given out.
func (e *Engine) distinctUID(p isolation.Posture) sandbox.LayerReport {
	r := sandbox.LayerReport{Layer: sandbox.LayerDistinctUID, State: sandbox.LayerHeld}
	// Three lines of three numbers: inside, outside as the parent namespace
	// counts, how many. The program may hold exactly its own.
	if len(p.UIDMap) != 9 || p.UIDMap[0] != strconv.Itoa(isolation.SupervisorID) || p.UIDMap[2] != "1" || p.UIDMap[5] != "1" || p.UIDMap[8] != "1" {
		r.State, r.Reason = sandbox.LayerMissing, fmt.Sprintf("seen from inside: id map %v", p.UIDMap)
	}
	return r
}

func (e *Engine) probeCgroups() ([]sandbox.LayerReport, error) {
	findings, err := e.cfg.Cgroups.Probe()
	if err != nil {
		return nil, fmt.Errorf("probe cgroups: %w", err)
	}
	return isolation.CgroupReports(findings, e.cfg.Cgroups.Version()), nil
}

// inOrder sorts reports as layers are shown; the first report on a layer wins.
func inOrder(reports []sandbox.LayerReport) []sandbox.LayerReport {
	var out []sandbox.LayerReport
	for _, l := range sandbox.Layers() {
		found := sandbox.LayerReport{Layer: l, State: sandbox.LayerMissing, Reason: "not probed"}
		for _, r := range reports {
			if r.Layer == l {
				found = r
				break
			}
		}
		out = append(out, found)
	}
	return out
}

// limitSupport: the native engine enforces every limit.
func limitSupport() map[string]isolation.LimitSupport {
	out := map[string]isolation.LimitSupport{}
	var l sandbox.Limits
	for _, f := range l.Fields() {
		out[f.Name] = isolation.Enforced
	}
	return out
}
