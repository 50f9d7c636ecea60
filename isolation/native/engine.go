package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/rollback"
	"github.com/sandboxd/sandboxd/isolation"
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
	slots    *slots
	groups   *groups
	pool     *pool
	landlock int

	mu             sync.Mutex
	zygote         *zygote
	retired        []*zygote // recycled ones whose last sandboxes still run
	number         int       // of zygotes started, for their groups' names
	forksPerZygote int64
	support        *isolation.Support
	closed         bool
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
		cfg: cfg, slots: newSlots(cfg.Sandboxes + 1), landlock: abi, forksPerZygote: forksPerZygote,
		groups: &groups{manager: cfg.Cgroups, keep: 2 * cfg.Ready},
	}
	e.pool = newPool(cfg.Ready, cfg.Log, func(ctx context.Context) (*liveSandbox, error) {
		return e.make(ctx, sandbox.DefaultLimits(), readyShape())
	})
	return e, nil
}

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
	s, err := e.create(ctx, p.Limits, p.Collect)
	if err != nil {
		return nil, err
	}
	s.layers = support.Layers
	e.pool.start()
	return s, nil
}

// create gives a sandbox the limits of one run: a ready one where its mounts and
// its filter are as the run needs them, else a new one.
func (e *Engine) create(ctx context.Context, l sandbox.Limits, collect bool) (*liveSandbox, error) {
	var s *liveSandbox
	want := shapeOf(l, collect)
	if want == readyShape() {
		s = e.pool.take()
	}
	if s == nil {
		var err error
		if s, err = e.make(ctx, l, want); err != nil {
			return nil, err
		}
	}
	rlimits, err := e.confine().Rlimits(l)
	if err == nil {
		err = s.group.setLimits(groupLimits(l))
	}
	if err == nil {
		err = s.setRlimits(rlimits)
	}
	if err != nil {
		s.discard()
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

func (e *Engine) confine() isolation.Confine {
	return isolation.Confine{
		Arch: e.cfg.Arch, Landlock: e.landlock,
		ReadOnly:  []string{"/"},
		ReadWrite: []string{isolation.Workspace, "/tmp", "/dev"},
		Workspace: isolation.Workspace, SitePackages: orEmpty(e.cfg.Image.SitePackages),
		Sockets: true, OwnIDs: true, OwnUID: true, Kill: pyrunner.KillNamespace,
	}
}

// make makes a new sandbox, without asking whether what it needs was proven:
// Probe itself uses it. l are limits of that shape.
func (e *Engine) make(ctx context.Context, l sandbox.Limits, want shape) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	z, err := e.ready(ctx)
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
	first, err := e.slots.take()
	if err != nil {
		return nil, err
	}
	undo.Add("give host ids back", func() error { e.slots.give(first); return nil })
	group, err := e.groups.take(groupLimits(l))
	if err != nil {
		return nil, err
	}
	undo.Add("remove cgroup", func() error { return emptyAndDelete(group.Group) })
	s := &liveSandbox{engine: e, zygote: z, firstID: first, group: group}
	if err := s.fork(ctx, l, want); err != nil {
		return nil, err
	}
	undo.Release()
	return s, nil
}

// ready returns a live zygote with one user more, started anew when the last one
// has ended or has forked enough.
func (e *Engine) ready(ctx context.Context) (*zygote, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine native", "it is closed")
	}
	if err := e.buryRetired(false); err != nil {
		return nil, err
	}
	if z := e.zygote; z != nil && z.alive() && z.forks.Load() < e.forksPerZygote {
		z.users.Add(1)
		return z, nil
	}
	if old := e.zygote; old != nil {
		if !old.alive() {
			e.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "zygote ended; starting another",
				slog.String("engine", Name), slog.Any("err", old.goneError()))
		}
		e.retired = append(e.retired, old)
		e.zygote = nil
	}
	e.number++
	group, err := e.cfg.Cgroups.Create(fmt.Sprintf("zygote-%d", e.number), cgroup.Limits{
		MemoryBytes: zygoteMemory, Pids: int64(e.cfg.Sandboxes) + 64,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootTimeout)
	defer cancel()
	z, err := startZygote(ctx, e.cfg, e.cfg.Image, group)
	if err != nil {
		return nil, errors.Join(err, emptyAndDelete(group))
	}
	e.zygote = z
	z.users.Add(1)
	return z, nil
}

// buryRetired ends the zygotes that nobody needs any more; all of them when the
// engine closes. A dead one's sandboxes are dead too.
func (e *Engine) buryRetired(all bool) error {
	var errs []error
	e.retired = slices.DeleteFunc(e.retired, func(z *zygote) bool {
		if !all && z.alive() && z.users.Load() > 0 {
			return false
		}
		errs = append(errs, e.bury(z))
		return true
	})
	return errors.Join(errs...)
}

func (e *Engine) bury(z *zygote) error {
	z.kill()
	return emptyAndDelete(z.group)
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
	e.pool.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if e.zygote != nil {
		e.retired = append(e.retired, e.zygote)
		e.zygote = nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	return errors.Join(e.buryRetired(true), e.groups.close(ctx), e.cfg.Cgroups.Close())
}
