package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
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

// Engine is the native engine.
type Engine struct {
	cfg      Config
	slots    *slots
	landlock int

	mu      sync.Mutex
	zygote  *zygote
	number  int // of zygotes started, for their groups' names
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
	return &Engine{cfg: cfg, slots: newSlots(cfg.Sandboxes + 1), landlock: abi}, nil
}

// Name implements isolation.Engine.
func (e *Engine) Name() string { return Name }

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	support, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if missing := support.Missing(p.Require); len(missing) > 0 {
		return nil, isolation.MissingLayer(missing[0])
	}
	return e.create(ctx, p, support.Layers)
}

// create makes a sandbox without asking whether what it needs was proven; Probe
// itself uses it.
func (e *Engine) create(ctx context.Context, p isolation.Plan, layers []sandbox.LayerReport) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	z, err := e.ready(ctx)
	if err != nil {
		return nil, err
	}
	var undo rollback.Stack
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
	group, err := e.cfg.Cgroups.Create("run-"+p.ID, cgroup.Limits{
		MemoryBytes: p.Limits.MemoryBytes, Pids: isolation.Tasks(p.Limits),
	})
	if err != nil {
		return nil, err
	}
	undo.Add("remove cgroup", func() error { return emptyAndDelete(group) })
	b := &liveSandbox{engine: e, firstID: first, group: group, layers: layers}
	if err := b.fork(ctx, z, p); err != nil {
		return nil, err
	}
	undo.Release()
	return b, nil
}

// fork has the zygote fork the sandbox and waits for the supervisor's hello.
func (s *liveSandbox) fork(ctx context.Context, z *zygote, p isolation.Plan) (err error) {
	e := s.engine
	config, err := isolation.Confine{
		Arch: e.cfg.Arch, Landlock: e.landlock,
		ReadOnly:  []string{"/"},
		ReadWrite: []string{isolation.Workspace, "/tmp", "/dev"},
		Workspace: isolation.Workspace, SitePackages: orEmpty(e.cfg.Image.SitePackages),
		Sockets: true, OwnIDs: true, OwnUID: true, Kill: pyrunner.KillNamespace,
	}.Confinement(p.Limits)
	if err != nil {
		return err
	}
	spec := isolation.Spec(p, isolation.Host{RootPath: "/", FirstID: e.cfg.UIDBase + s.firstID})
	o, err := newOrder(spec, s.firstID, config)
	if err != nil {
		return err
	}
	stream, far, err := fdpass.StreamPair()
	if err != nil {
		return err
	}
	pidfd, err := z.fork(ctx, o, append([]*os.File{far}, s.group.AttachFiles()...))
	if err = errors.Join(err, far.Close()); err != nil {
		return errors.Join(err, stream.Close())
	}
	s.stream = stream
	if s.proc, err = watch(pidfd); err != nil {
		return errors.Join(err, stream.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = s.proc.Kill() })
	defer stop()
	if _, err := pyrunner.ReadHello(stream); err != nil {
		_ = s.proc.Kill()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return errors.Join(fmt.Errorf("set up sandbox: %w", err), s.proc.Wait(context.Background()), stream.Close(), s.proc.Close())
	}
	return nil
}

// ready returns a live zygote, started anew when the last one has ended.
func (e *Engine) ready(ctx context.Context) (*zygote, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine native", "it is closed")
	}
	if e.zygote != nil && e.zygote.alive() {
		return e.zygote, nil
	}
	if old := e.zygote; old != nil {
		e.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "zygote ended; starting another", slog.String("engine", Name), slog.Any("err", old.goneError()))
		if err := e.bury(old); err != nil {
			return nil, err
		}
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
	return z, nil
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
func (e *Engine) Close(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var err error
	if e.zygote != nil {
		err = e.bury(e.zygote)
		e.zygote = nil
	}
	return errors.Join(err, e.cfg.Cgroups.Close())
}
