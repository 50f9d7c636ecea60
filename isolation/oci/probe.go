package oci

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// probeTimeout bounds a probe.
const probeTimeout = 90 * time.Second

// found gives the runtime of this host, looked at once.
func (e *Engine) found(ctx context.Context) (found, error) {
	e.mu.Lock()
	kept := e.runtime
	e.mu.Unlock()
	if kept != nil {
		return *kept, nil
	}
	f, err := e.inspect(ctx)
	if err != nil {
		return found{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runtime = &f
	return f, nil
}

// Probe implements isolation.Engine: it makes a container, looks at it from inside
// and out, and removes it. The answer is kept.
func (e *Engine) Probe(ctx context.Context) (isolation.Support, error) {
	e.probing.Lock()
	defer e.probing.Unlock()
	if e.support != nil {
		return *e.support, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	support := isolation.Support{
		Engine: e.Name(), Limits: e.limitSupport(),
		Interpreter: "Python " + e.cfg.Image.PythonVersion + " at " + e.cfg.Image.Interpreter,
		Image:       e.cfg.Image.Name + " " + e.cfg.Image.Digest,
		Images:      e.cfg.Images != nil,
	}
	reports, err := e.look(ctx, &support)
	if err != nil {
		support.Reason = err.Error()
		reports = isolation.NoneHeld(err, isolation.RootNeeded)
	}
	support.Usable, support.Layers = err == nil, reports
	if support.Usable { // a host that is mended is probed again
		e.support = &support
	}
	return support, nil
}

// look finds the runtime and looks at one of its containers.
func (e *Engine) look(ctx context.Context, support *isolation.Support) ([]sandbox.LayerReport, error) {
	runtime, err := e.found(ctx)
	if err != nil {
		return nil, err
	}
	support.Notes = append(support.Notes, fmt.Sprintf("%s %s at %s", e.Name(), runtime.version, runtime.program))
	if e.traits.ownKernel {
		support.Notes = append(support.Notes, "programs speak with a kernel in user space (gVisor), which alone speaks with the host's")
	}
	limits := sandbox.DefaultLimits()
	var outside map[string]string
	posture, err := isolation.Examine(ctx, limits, func(ctx context.Context) (isolation.Sandbox, error) {
		s, err := e.take(ctx, e.usual, limits)
		if err != nil {
			return nil, err
		}
		outside, err = s.namespaces()
		if err != nil {
			return nil, errors.Join(err, s.Destroy(ctx))
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return e.judge(posture, outside)
}

func (e *Engine) judge(p isolation.Posture, outside map[string]string) ([]sandbox.LayerReport, error) {
	seen := append(p.Layers(isolation.OwnNamespaces()), e.distinctUID(p), isolation.LandlockReport(e.landlock))
	groups, err := e.cfg.Cgroups.Probe()
	if err != nil {
		return nil, fmt.Errorf("probe cgroups: %w", err)
	}
	byLayer := map[sandbox.Layer]sandbox.LayerReport{}
	for _, r := range append(seen, isolation.CgroupReports(groups, e.cfg.Cgroups.Version())...) {
		byLayer[r.Layer] = r
	}
	if e.traits.ownKernel {
		isolation.CorrectForOwnKernel(byLayer, isolation.OwnNamespaces(), outside)
	}
	return isolation.InOrder(byLayer), nil
}

// distinctUID checks the program's id map: it may hold exactly its own, one by one.
func (e *Engine) distinctUID(p isolation.Posture) sandbox.LayerReport {
	r := sandbox.LayerReport{Layer: sandbox.LayerDistinctUID, State: sandbox.LayerHeld}
	m := p.UIDMap
	if len(m) != 9 || m[0] != strconv.Itoa(isolation.SupervisorID) || m[2] != "1" || m[5] != "1" || m[8] != "1" {
		r.State, r.Reason = sandbox.LayerMissing, fmt.Sprintf("seen from inside: id map %v", m)
	}
	return r
}

// limitSupport: what a runtime's own kernel does not count cannot be enforced.
func (e *Engine) limitSupport() map[string]isolation.LimitSupport {
	out := map[string]isolation.LimitSupport{}
	var l sandbox.Limits
	for _, f := range l.Fields() {
		out[f.Name] = isolation.Enforced
	}
	if e.traits.ownKernel {
		for _, name := range isolation.OwnKernelLacks() {
			out[name] = isolation.Unsupported
		}
	}
	return out
}

// namespaces names those that the container's first process is in on the host.
func (s *liveSandbox) namespaces() (map[string]string, error) {
	pids, err := s.group.Procs()
	if err != nil || len(pids) == 0 {
		return nil, errors.Join(errors.New("the container has no process"), err)
	}
	return isolation.NamespacesOf(strconv.Itoa(pids[0]))
}
