package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

// family is the sandboxes of one preload set: the zygote that has imported its
// modules, and the pool of what that has forked.
type family struct {
	engine  *Engine
	set     string
	modules []string
	pool    *pool.Pool[*liveSandbox]

	up atomic.Pointer[zygote] // zygote, for those who must not wait for its boot

	mu      sync.Mutex // held while a zygote boots
	zygote  *zygote
	retired []*zygote // recycled ones whose last sandboxes still run
	closed  bool
}

func newFamily(e *Engine, set string, modules []string) (*family, error) {
	f := &family{engine: e, set: set, modules: modules}
	var err error
	f.pool, err = pool.New(pool.Config[*liveSandbox]{
		Engine: Name, Log: e.cfg.Log, Most: e.mostReady(), Together: mostAtOnce,
		Busy: e.busy, Idled: e.groups.trim, Pace: f.pace,
		Fill: func(ctx context.Context) (*liveSandbox, error) {
			return e.make(ctx, f, sandbox.DefaultLimits(), readyShape(), true)
		},
	})
	return f, err
}

// ready returns a live zygote with one user more, started anew when the last one
// has ended or has forked enough.
func (f *family) ready(ctx context.Context) (*zygote, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine native", "it is closed")
	}
	if err := f.buryRetired(false); err != nil {
		return nil, err
	}
	if z := f.zygote; z != nil && z.alive() && z.forks.Load() < f.engine.forksPerZygote.Load() {
		z.users.Add(1)
		return z, nil
	}
	if old := f.zygote; old != nil {
		if !old.alive() {
			f.engine.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "zygote ended; starting another",
				slog.String("engine", Name), slog.String("preload", f.set), slog.Any("err", old.goneError()))
		}
		f.retire()
	}
	z, err := f.boot(ctx)
	if err != nil {
		return nil, err
	}
	f.zygote = z
	f.up.Store(z)
	z.users.Add(1)
	return z, nil
}

func (f *family) boot(ctx context.Context) (*zygote, error) {
	e := f.engine
	group, err := e.cfg.Cgroups.Create(fmt.Sprintf("zygote-%d", e.zygotes.Add(1)), cgroup.Limits{
		MemoryBytes: zygoteMemory, Pids: int64(e.cfg.Sandboxes) + 64,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootTimeout)
	defer cancel()
	z, err := startZygote(ctx, e.cfg, f.modules, group)
	if err != nil {
		return nil, errors.Join(err, emptyAndDelete(group))
	}
	return z, nil
}

// awake tells whether a zygote is up. It does not wait for one that boots.
func (f *family) awake() bool {
	z := f.up.Load()
	return z != nil && z.alive()
}

func (f *family) pace(hurry bool) {
	if z := f.up.Load(); z != nil {
		z.pace(hurry)
	}
}

// retire has the zygote go when its last sandbox does.
func (f *family) retire() {
	if f.zygote != nil {
		f.retired = append(f.retired, f.zygote)
		f.zygote = nil
		f.up.Store(nil)
	}
}

// buryRetired ends the zygotes that nobody needs any more; all of them when the
// family closes. A dead one's sandboxes are dead too.
func (f *family) buryRetired(all bool) error {
	var errs []error
	f.retired = slices.DeleteFunc(f.retired, func(z *zygote) bool {
		if !all && z.alive() && z.users.Load() > 0 {
			return false
		}
		z.kill()
		errs = append(errs, emptyAndDelete(z.group))
		return true
	})
	return errors.Join(errs...)
}

// close ends everything; no sandbox that was handed out may be live.
func (f *family) close() error {
	f.pool.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.retire()
	return f.buryRetired(true)
}

// evictAfter is how long a preload set may go unused before its zygote ends, and
// evictPause how often that is looked at.
const (
	evictAfter = 10 * time.Minute
	evictPause = 15 * time.Second
)

// families are the preload sets: the usual one is up once it was needed, the
// others are booted when a program seems to need one, and evicted when none does.
type families struct {
	engine *Engine
	usual  *family
	after  time.Duration // evictAfter
	pause  time.Duration // evictPause

	mu       sync.Mutex
	byModule map[string]*family // those that are up, or being booted
	closed   bool
	stop     chan struct{}
	keepers  sync.WaitGroup
}

func newFamilies(e *Engine) (*families, error) {
	usual, err := newFamily(e, "usual", e.cfg.Preload)
	return &families{
		engine: e, usual: usual, after: evictAfter, pause: evictPause,
		byModule: map[string]*family{}, stop: make(chan struct{}),
	}, err
}

// choose picks the sandboxes for a program. One whose set is not up yet gets the
// usual ones, in which it imports for itself, while the set is booted for those
// who come after.
func (fs *families) choose(mentions func(module string) bool) *family {
	if mentions == nil {
		return fs.usual
	}
	for _, module := range fs.engine.cfg.PreloadSets {
		if !mentions(module) {
			continue
		}
		if f := fs.get(module); f != nil && f.awake() {
			return f
		}
		break
	}
	return fs.usual
}

func (fs *families) get(module string) *family {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		return nil
	}
	if f := fs.byModule[module]; f != nil {
		return f
	}
	f, err := newFamily(fs.engine, module, append(slices.Clone(fs.engine.cfg.Preload), module))
	if err != nil {
		return nil // its programs import for themselves
	}
	fs.byModule[module] = f
	fs.keepers.Go(func() { fs.keep(f) })
	return f
}

// keep owns a preload set from its boot until it is evicted or the engine closes.
// One that cannot be had is not tried again: its programs run all the same, and
// import for themselves.
func (fs *families) keep(f *family) {
	z, err := f.ready(context.Background())
	if err != nil {
		fs.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "preload set not booted", f.describe(err)...)
		return
	}
	z.users.Add(-1)
	f.pool.Touch() // its boot was no idle time
	f.pool.Start()
	tick := time.NewTicker(fs.pause)
	defer tick.Stop()
	for evicted := false; ; {
		select {
		case <-fs.stop:
			if !evicted {
				return // it is among those that close
			}
		case <-tick.C:
			if !evicted && f.pool.Idle() > fs.after {
				evicted = true
				fs.mu.Lock()
				delete(fs.byModule, f.set)
				fs.mu.Unlock()
				f.pool.Close()
			}
			if !evicted || !f.deserted() {
				continue
			}
		}
		if err := f.close(); err != nil {
			fs.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelError, "evict preload set", f.describe(err)...)
		}
		return
	}
}

// deserted tells whether no sandbox of an evicted family is left. Somebody who
// had chosen it before may have booted a zygote once more.
func (f *family) deserted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retire()
	return !slices.ContainsFunc(f.retired, func(z *zygote) bool { return z.alive() && z.users.Load() > 0 })
}

func (f *family) describe(err error) []slog.Attr {
	return []slog.Attr{slog.String("engine", Name), slog.String("preload", f.set), slog.Any("err", err)}
}

// all are the families that are up.
func (fs *families) all() []*family {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := []*family{fs.usual}
	for _, f := range fs.byModule {
		out = append(out, f)
	}
	return out
}

func (fs *families) close() error {
	fs.mu.Lock()
	if !fs.closed {
		fs.closed = true
		close(fs.stop)
	}
	fs.mu.Unlock()
	fs.keepers.Wait()
	var errs []error
	for _, f := range fs.all() {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}
