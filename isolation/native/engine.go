package native

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/rollback"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Name is the engine's name.
const Name = "native"

// bootTimeout bounds the start of a zygote and setupTimeout that of a sandbox,
// on a machine that is busy or emulated.
const (
	bootTimeout  = 60 * time.Second
	setupTimeout = 30 * time.Second
)

// forksPerZygote is after how many forks a zygote is replaced: its children
// share an address layout and a hash seed, which a patient attacker could learn.
const forksPerZygote = 10_000

// Engine is the native engine.
type Engine struct {
	cfg      Config
	ids      *pool.IDs
	groups   *groups
	sweeper  *sweeper
	families *families
	landlock int

	zygotes        atomic.Int64 // started, for their groups' names
	live           atomic.Int64 // sandboxes that were handed out and have something running
	forksPerZygote atomic.Int64

	mu      sync.Mutex
	support *isolation.Support
	closed  bool
}

// New makes the engine; it starts nothing yet.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	abi, err := landlock.ABI()
	if err != nil {
		return nil, fmt.Errorf("native engine: ask for Landlock: %w", err)
	}
	e := &Engine{
		cfg: cfg, ids: pool.NewIDs(1, cfg.Sandboxes+1), landlock: abi,
		groups: &groups{manager: cfg.Cgroups}, sweeper: newSweeper(),
	}
	e.groups.keep = 2 * e.mostReady()
	e.forksPerZygote.Store(forksPerZygote)
	e.families, err = newFamilies(e)
	return e, err
}

// readyBytes is what a ready sandbox holds of memory: it shares what it has not
// written with its zygote.
const readyBytes = 4 << 20

// mostReady is how many sandboxes of a family are kept ready at most.
func (e *Engine) mostReady() int {
	if e.cfg.ReadyBytes > 0 {
		return min(e.cfg.Ready, int(e.cfg.ReadyBytes/readyBytes))
	}
	return e.cfg.Ready
}

// busy tells whether the processors have runs to serve.
func (e *Engine) busy() bool { return e.live.Load() >= int64(runtime.NumCPU()) }

// Name implements isolation.Engine.
func (e *Engine) Name() string { return Name }

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	support, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if err := support.Refuse(p.Require); err != nil {
		return nil, err
	}
	s, err := e.create(ctx, p)
	if err != nil {
		return nil, err
	}
	s.layers = support.Layers
	return s, nil
}

// create gives a sandbox the limits of one run: a ready one where its mounts and
// its filter are as the run needs them, else a new one.
func (e *Engine) create(ctx context.Context, p isolation.Plan) (*liveSandbox, error) {
	began := time.Now()
	family, done, err := e.families.choose(p)
	if err != nil {
		return nil, err
	}
	defer done()
	want := shapeOf(p.Limits, p.Collect)
	var s *liveSandbox
	if want == readyShape() {
		family.pool.Start()
		var found bool
		if s, found = family.pool.Take(); !found && e.busy() {
			family.pool.MakeAhead()
		}
	}
	pooled := time.Since(began)
	if s != nil {
		s.making = isolation.Making{Ready: true}
	} else {
		family.pool.Hurry()
		if s, err = e.make(ctx, family, p.Limits, want, false); err != nil {
			return nil, err
		}
	}
	s.making.Pool = pooled
	e.live.Add(1)
	s.handedOut = true
	rlimits, err := e.confine(s.image).Rlimits(p.Limits)
	if err == nil {
		err = s.group.setLimits(groupLimits(p.Limits))
	}
	if err == nil {
		err = s.setRlimits(rlimits, p.Files)
	}
	if err != nil {
		s.Discard()
		return nil, fmt.Errorf("limit sandbox: %w", err)
	}
	return s, nil
}

func groupLimits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{MemoryBytes: l.MemoryBytes, Pids: isolation.Tasks(l)}
}

// shape is what of the limits is built into a sandbox when it is made. The rest
// can be set afterwards.
type shape struct {
	workspaceBytes, workspaceInodes int64
	processes                       bool
	supervised                      bool // has somebody in it to reap processes and to collect files
}

func shapeOf(l sandbox.Limits, collect bool) shape {
	return shape{l.WorkspaceBytes, l.WorkspaceInodes, l.Processes > 0, l.Processes > 0 || collect}
}

// readyShape is what sandboxes are made in ahead of need.
func readyShape() shape { return shapeOf(sandbox.DefaultLimits(), false) }

func (e *Engine) confine(image *images.Image) isolation.Confine {
	return isolation.Confine{
		Arch: e.cfg.Arch, Landlock: e.landlock,
		ReadOnly:  []string{"/"},
		ReadWrite: []string{isolation.Workspace, "/tmp", "/dev"},
		Workspace: isolation.Workspace, SitePackages: orEmpty(image.SitePackages),
		Sockets: true, OwnIDs: true, OwnUID: true, Kill: pyrunner.KillNamespace,
	}
}

// make makes a new sandbox, without asking whether what it needs was proven:
// Probe itself uses it. l are limits of that shape; ahead: it is to wait for its
// run.
func (e *Engine) make(ctx context.Context, f *family, l sandbox.Limits, want shape, ahead bool) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	z, err := f.ready(ctx)
	if err != nil {
		return nil, err
	}
	var undo rollback.Stack
	undo.Add("let go of zygote", func() error { z.users.Add(-1); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Rollback())
		}
	}()
	first, err := e.ids.Take()
	if err != nil {
		return nil, err
	}
	undo.Add("give host ids back", func() error { e.ids.Give(first); return nil })
	group, err := e.groups.take(groupLimits(l))
	if err != nil {
		return nil, err
	}
	undo.Add("remove cgroup", func() error { return emptyAndDelete(group.Group) })
	s := &liveSandbox{engine: e, image: f.image, zygote: z, firstID: first, group: group, ahead: ahead}
	if err := s.fork(ctx, l, want); err != nil {
		return nil, err
	}
	undo.Release()
	return s, nil
}

// Reap implements isolation.Engine. What a dead daemon leaves lives in its
// cgroups: the zygote ends with its control socket, and with it every sandbox,
// their mounts and network namespaces; only directories of cgroups remain, and
// processes that could not end by themselves.
func (e *Engine) Reap(ctx context.Context) error {
	return e.cfg.Cgroups.Reap(ctx)
}

// Close implements isolation.Engine.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	return errors.Join(e.families.close(), e.groups.close(ctx), e.cfg.Cgroups.Close())
}
