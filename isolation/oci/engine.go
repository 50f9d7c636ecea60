package oci

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Engine makes sandboxes by one runtime.
type Engine struct {
	cfg      Config
	traits   traits
	ids      *pool.IDs
	usual    *rootfs                      // of Config.Image
	others   *pool.Kinds[string, *rootfs] // by digest
	landlock int

	// Containers are called by prefix and number. runsc's has an abstract socket of
	// that name in the host's network namespace, so other daemons must not have it.
	prefix string
	number atomic.Int64
	live   atomic.Int64 // sandboxes that were handed out and not destroyed yet

	mu      sync.Mutex
	apart   *mountns.Apart
	runtime *found
	support *isolation.Support
	closed  bool

	probing sync.Mutex
}

// New makes the engine; it starts nothing and touches nothing yet.
func New(cfg Config) (*Engine, error) {
	t, err := traitsOf(cfg.Runtime)
	if err != nil {
		return nil, fmt.Errorf("oci engine: %w", err)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, traits: t, ids: pool.NewIDs(0, cfg.Sandboxes), prefix: "sandbox-" + strings.ToLower(rand.Text()[:12])}
	if !t.ownKernel {
		if e.landlock, err = landlock.ABI(); err != nil {
			return nil, fmt.Errorf("oci engine: ask for Landlock: %w", err)
		}
	}
	e.others = pool.NewKinds[string, *rootfs]()
	e.usual, err = newRootfs(e, images.NewUse(cfg.Image, func() {}))
	return e, err
}

// A container costs some hundred milliseconds of a processor and as many MiB as
// an interpreter, so few wait, and those of a burst wait longer than they took.
const (
	leastReady  = 2
	shrinkAfter = 30 * time.Second
)

// Name implements isolation.Engine.
func (e *Engine) Name() string { return e.cfg.Runtime }

// busy tells whether the processors have runs to serve.
func (e *Engine) busy() bool { return e.live.Load() >= int64(runtime.NumCPU()) }

// errClosed is the refusal of an engine that was closed.
func (e *Engine) errClosed() error {
	return sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine "+e.Name(), "it is closed")
}

// namespace is where runtimes are started; it is made with the first.
func (e *Engine) namespace() (*mountns.Apart, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.errClosed()
	}
	if e.apart != nil {
		return e.apart, nil
	}
	if err := e.makeDirs(); err != nil {
		return nil, err
	}
	apart, err := mountns.NewApart()
	if err != nil {
		return nil, err
	}
	if hybrid := e.cfg.Cgroups.Hybrid(); hybrid != "" && e.traits.unhybrid {
		if err := apart.Unmount(hybrid); err != nil {
			apart.Close()
			return nil, err
		}
	}
	e.apart = apart
	return apart, nil
}

func (e *Engine) makeDirs() error {
	d := e.dirs()
	for _, dir := range []string{e.cfg.Dir, d.rootfs} { // container root passes through
		if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // as said
			return fmt.Errorf("make directory: %w", err)
		}
	}
	for _, dir := range []string{d.state, d.bundles} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// takeDown takes a tree away that was put together.
func (e *Engine) takeDown(dir string) error {
	e.mu.Lock()
	apart := e.apart
	e.mu.Unlock()
	if apart == nil {
		return nil
	}
	err := errors.Join(apart.Unmount(dir), os.Remove(dir))
	if errors.Is(err, os.ErrNotExist) { // with the directory the mount went, which another daemon has reaped
		return nil
	}
	return err
}

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	support, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if !support.Usable {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine "+e.Name(), "%s", support.Reason)
	}
	if err := support.Refuse(p.Require); err != nil {
		return nil, err
	}
	r, done, err := e.choose(p.Image)
	if err != nil {
		return nil, err
	}
	defer done()
	r.pool.Start()
	s, err := e.take(ctx, r, p.Limits)
	if err != nil {
		return nil, err
	}
	s.layers = support.Layers
	return s, nil
}

// take gives a sandbox the limits of one run: a ready one where its mounts and its
// filter are as the run needs them, else a new one.
func (e *Engine) take(ctx context.Context, r *rootfs, l sandbox.Limits) (*liveSandbox, error) {
	began := time.Now()
	var s *liveSandbox
	if isolation.ShapeOf(l) == isolation.ShapeOf(sandbox.DefaultLimits()) {
		if ready, ok := r.pool.Take(); ok {
			s = ready
			s.making = isolation.Making{Ready: true}
		}
	}
	pooled := time.Since(began)
	if s == nil {
		r.pool.Hurry()
		var err error
		if s, err = e.make(ctx, r, l); err != nil {
			return nil, err
		}
	}
	s.making.Pool = pooled
	e.live.Add(1)
	s.handedOut = true
	if err := s.limit(l); err != nil {
		s.Discard()
		return nil, fmt.Errorf("limit sandbox: %w", err)
	}
	return s, nil
}

// tasks is the pids limit.
func (e *Engine) tasks(l sandbox.Limits) int64 { return isolation.Tasks(l) + e.traits.leastTasks }

func (e *Engine) groupLimits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{MemoryBytes: l.MemoryBytes, Pids: e.tasks(l)}
}

func (e *Engine) confine(r *rootfs) isolation.Confine {
	return isolation.Confine{
		Arch: e.cfg.Arch, Landlock: e.landlock,
		ReadOnly:  []string{"/"},
		ReadWrite: []string{isolation.Workspace, "/tmp", "/dev"},
		Workspace: isolation.Workspace, SitePackages: append([]string{}, r.image.SitePackages...),
		Sockets: true, OwnIDs: true, OwnUID: true, Kill: pyrunner.KillNamespace,
	}
}

// confinement is what the supervisor applies to the program.
func (e *Engine) confinement(r *rootfs, l sandbox.Limits) (pyrunner.Confinement, error) {
	c, err := e.confine(r).Confinement(l)
	if err != nil {
		return c, err
	}
	if c.Capabilities, err = isolation.CapabilityNumbers(isolation.Capabilities()); err != nil {
		return c, err
	}
	c.Rlimits, err = e.rlimits(r, l)
	return c, err
}

func (e *Engine) rlimits(r *rootfs, l sandbox.Limits) ([]pyrunner.Rlimit, error) {
	limits, err := e.confine(r).Rlimits(l)
	if err == nil && e.traits.ownKernel {
		limits = isolation.OwnKernelRlimits(limits, l.Threads)
	}
	return limits, err
}

// Stats tells the engine's own figures.
func (e *Engine) Stats() isolation.Stats {
	var s isolation.Stats
	for _, r := range append(e.others.All(), e.usual) {
		p := r.pool.Stats()
		s.Ready += p.Ready
		s.Taken += p.Taken
		s.Dry += p.Dry
	}
	if cpu, err := e.cfg.Cgroups.CPU(); err == nil {
		s.CPUSeconds = float64(cpu.TotalMicros) / 1e6
	}
	return s
}

// Close implements isolation.Engine.
func (e *Engine) Close(context.Context) error {
	err := errors.Join(e.others.Close(), e.usual.Close())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return err
	}
	e.closed = true
	if e.apart != nil {
		e.apart.Close()
	}
	return errors.Join(err, e.cfg.Cgroups.Close())
}
