package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

// family is the sandboxes of one image and one preload set: the zygote that has
// imported its modules, and the pool of what that has forked.
type family struct {
	engine  *Engine
	key     familyKey
	image   *images.Image
	use     *images.Use // of image; nil for the engine's own, which stays
	modules []string
	pool    *pool.Pool[*liveSandbox]

	up atomic.Pointer[zygote] // zygote, for those who must not wait for its boot

	mu      sync.Mutex // held while a zygote boots
	zygote  *zygote
	retired []*zygote // recycled ones whose last sandboxes still run
	closed  bool
}

func newFamily(e *Engine, key familyKey, image *images.Image, use *images.Use) (*family, error) {
	f := &family{engine: e, key: key, image: image, use: use, modules: e.cfg.Preload}
	if key.module != "" {
		f.modules = append(slices.Clone(f.modules), key.module)
	}
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
			f.engine.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "zygote ended; starting another", f.describe(old.goneError())...)
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
	z, err := startZygote(ctx, e.cfg, f.image, f.modules, group)
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

func (f *family) describe(err error) []slog.Attr {
	return []slog.Attr{
		slog.String("engine", Name), slog.String("image", f.image.Name), slog.String("preload", cmp.Or(f.key.module, "usual")), slog.Any("err", err),
	}
}
