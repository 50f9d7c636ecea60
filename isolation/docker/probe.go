package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// probeTimeout bounds a probe, which may have to give an image to the Engine.
const probeTimeout = 3 * time.Minute

// hostFacts are what the Engine says of itself.
type hostFacts struct {
	version string
	runtime string

	mapped     bool // users of containers are others on its host
	countsSwap bool // so that it can be closed
	ownKernel  bool // the runtime has a kernel of its own for programs: gVisor
}

// leastTasks is what a runtime's own threads need of the pids limit.
func (h hostFacts) leastTasks() int64 {
	if h.ownKernel {
		return isolation.OwnKernelTasks
	}
	return 0
}

// Probe implements isolation.Engine: it makes a container, looks at it from inside
// and out, and removes it. The answer is kept while the Docker Engine is there.
func (e *Engine) Probe(ctx context.Context) (isolation.Support, error) {
	if kept := e.proven(); kept != nil {
		return *kept, nil
	}
	if err := e.probing.take(ctx); err != nil {
		return isolation.Support{}, err
	}
	defer e.probing.give()
	if kept := e.proven(); kept != nil {
		return *kept, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	support := isolation.Support{Engine: Name, Limits: e.limitSupport(), Images: e.cfg.Images != nil}
	before := e.generation()
	reports, err := e.look(ctx, &support)
	if err != nil {
		support.Reason = err.Error()
		reports = isolation.NoneHeld(err, "see that a Docker Engine runs, and that the daemon may use it")
	}
	support.Usable, support.Layers = err == nil, reports
	support.Limits = e.limitSupport()
	e.mu.Lock()
	defer e.mu.Unlock()
	if support.Usable && before == e.generation() { // a host that is mended is probed again
		e.support = &support
	}
	return support, nil
}

// proven is the answer that is kept.
func (e *Engine) proven() *isolation.Support {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.support
}

// ask finds out about the Engine, once while it is there.
func (e *Engine) ask(ctx context.Context) (hostFacts, error) {
	version, err := e.checkVersion(ctx)
	if err != nil {
		return hostFacts{}, err
	}
	info, err := e.api.Info(ctx)
	if err != nil {
		return hostFacts{}, e.engineError("ask about host", err)
	}
	h := hostFacts{version: version, runtime: e.cfg.Runtime, countsSwap: info.SwapLimit}
	if h.runtime == "" {
		h.runtime = info.DefaultRuntime
	}
	r, known := info.Runtimes[h.runtime]
	if !known {
		return hostFacts{}, &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "find runtime", Subject: h.runtime, Err: errors.New("the Docker Engine has none of that name"),
			Mend: "add it to runtimes in the Engine's daemon.json, or leave engine.docker.runtime out",
		}
	}
	h.ownKernel = isGVisor(h.runtime, r)
	for _, option := range info.SecurityOptions {
		// name=userns: users are remapped; name=rootless: the Engine itself is nobody.
		if slices.ContainsFunc([]string{"name=userns", "name=rootless"}, func(o string) bool { return strings.HasPrefix(option, o) }) {
			h.mapped = true
		}
	}
	if h.mapped && e.cfg.Sandboxes*isolation.IDsPerSandbox > mappedIDs {
		return hostFacts{}, sandbox.Errorf(sandbox.KindUnavailable, "take host ids", "Docker Engine",
			"it maps users, and has ids for %d sandboxes at once, not for %d", mappedIDs/isolation.IDsPerSandbox, e.cfg.Sandboxes)
	}
	return h, nil
}

func isGVisor(name string, r system.RuntimeWithStatus) bool {
	for _, text := range []string{name, filepath.Base(r.Path), r.Type} {
		if strings.Contains(text, "runsc") || strings.Contains(text, "gvisor") {
			return true
		}
	}
	return false
}

// look asks about the Engine and looks at one of its containers.
func (e *Engine) look(ctx context.Context, support *isolation.Support) ([]sandbox.LayerReport, error) {
	host, err := e.ask(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.host = &host
	clear(e.images) // it may be another Engine, or have lost them
	e.mu.Unlock()
	img, err := e.image(ctx, "")
	if err != nil {
		return nil, err
	}
	limits := sandbox.DefaultLimits()
	var s *liveSandbox
	var outside map[string]string
	posture, err := isolation.Examine(ctx, limits, func(ctx context.Context) (isolation.Sandbox, error) {
		if s, err = e.make(ctx, img, limits); err != nil {
			return nil, err
		}
		if err = s.limit(ctx, limits); err == nil {
			outside, err = s.namespaces()
		}
		if err != nil {
			return nil, errors.Join(err, s.Destroy(ctx))
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	e.describe(support, s)
	return e.judge(posture, s, outside), nil
}

func (e *Engine) describe(support *isolation.Support, s *liveSandbox) {
	h, img := e.facts(), s.image
	support.Interpreter, support.Image = "Python "+img.python+" at "+img.interpreter, img.description
	if img.python == "" {
		support.Interpreter = "Python at " + img.interpreter
	}
	support.Notes = append(support.Notes, fmt.Sprintf("Docker Engine %s, runtime %s", h.version, h.runtime))
	if s.local == nil {
		support.Notes = append(support.Notes, "its containers are not processes of this machine: "+s.remote)
	}
	if h.ownKernel {
		support.Notes = append(support.Notes, "programs speak with a kernel in user space (gVisor), which alone speaks with the host's")
	}
}

// judge adds to what was seen from inside what is known from outside.
func (e *Engine) judge(p isolation.Posture, s *liveSandbox, outside map[string]string) []sandbox.LayerReport {
	h, own := e.facts(), isolation.OwnNamespaces()
	seen := p.Layers(own)
	landlock := isolation.LandlockReport(s.landlock)
	if s.local == nil && !h.ownKernel {
		landlock.Reason, landlock.Mend = "what the kernel of the Engine's host can is not known", "run sandboxd on that host"
	}
	seen = append(seen, landlock, distinctUID(p, s.ids.program))
	// make has compared what the kernel holds with what was asked for.
	for layer, reason := range map[sandbox.Layer]string{
		sandbox.LayerCgroupMemory: "memory and swap together, read back", sandbox.LayerCgroupPIDs: "read back", sandbox.LayerCgroupCPU: "",
	} {
		seen = append(seen, sandbox.LayerReport{Layer: layer, State: sandbox.LayerHeld, Reason: reason})
	}
	byLayer := map[sandbox.Layer]sandbox.LayerReport{}
	for _, r := range seen {
		byLayer[r.Layer] = r
	}
	byLayer[sandbox.LayerUserNS] = userNamespace(p, h)
	if h.ownKernel {
		// Ids inside are gVisor's own.
		byLayer[sandbox.LayerDistinctUID] = sandbox.LayerReport{Layer: sandbox.LayerDistinctUID, State: sandbox.LayerMissing}
		isolation.CorrectForOwnKernel(byLayer, own, outside)
	}
	return isolation.InOrder(byLayer)
}

// userNamespace: whether the Engine maps users shows in the container's map of ids,
// wherever it runs.
func userNamespace(p isolation.Posture, h hostFacts) sandbox.LayerReport {
	r := sandbox.LayerReport{Layer: sandbox.LayerUserNS, State: sandbox.LayerHeld, Reason: "the Engine remaps users, all containers alike"}
	if len(p.UIDMap) < 3 || p.UIDMap[0] == p.UIDMap[1] || !h.mapped {
		r.State = sandbox.LayerMissing
		r.Reason = "the Docker Engine does not remap users: programs have an id and no capabilities in its host's own user namespace"
		r.Mend = `set "userns-remap" in the Engine's daemon.json, or leave user_ns out of what the configuration requires of engine docker`
	}
	return r
}

// distinctUID checks that the program has the id that is this sandbox's alone, in
// every form of it (proc_pid_status(5)).
func distinctUID(p isolation.Posture, uid uint32) sandbox.LayerReport {
	r := sandbox.LayerReport{Layer: sandbox.LayerDistinctUID, State: sandbox.LayerHeld}
	id := strconv.FormatUint(uint64(uid), 10)
	for _, key := range []string{"Uid", "Gid"} {
		fields := strings.Fields(p.Status[key])
		if len(fields) != 4 || slices.ContainsFunc(fields, func(f string) bool { return f != id }) {
			r.State, r.Reason = sandbox.LayerMissing, fmt.Sprintf("seen from inside: %s %v, not %s", key, fields, id)
		}
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
	if e.facts().ownKernel {
		for _, name := range isolation.OwnKernelLacks() {
			out[name] = isolation.Unsupported
		}
	}
	return out
}

// namespaces names those that the container's first process is in on the host; none
// where that is not this machine.
func (s *liveSandbox) namespaces() (map[string]string, error) {
	if s.local == nil {
		return map[string]string{}, nil
	}
	return isolation.NamespacesOf(strconv.Itoa(s.pid))
}
