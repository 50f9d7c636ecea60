package native

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

// MostFamilies is how many families are up at once beside the usual one: each
// costs some 30 MiB and its ready sandboxes.
const MostFamilies = pool.MostKinds

// familyKey tells families apart.
type familyKey struct {
	image  string // digest
	module string // that is imported beside the usual ones; empty for those only
}

// families are the images and preload sets: the usual one is up once it was
// needed, the others are booted when a run needs one, and evicted when none does.
type families struct {
	engine *Engine
	usual  *family
	others *pool.Kinds[familyKey, *family]
}

func newFamilies(e *Engine) (*families, error) {
	usual, err := newFamily(e, familyKey{image: e.cfg.Image.Digest}, e.cfg.Image, nil)
	return &families{engine: e, usual: usual, others: pool.NewKinds[familyKey, *family]()}, err
}

// choose picks the family for a run. It is not evicted until done is called.
//
// A run of an image that is not up yet waits for it. One whose preload set is not
// up gets the image's usual ones, in which it imports for itself, while the set is
// booted for those who come after.
func (fs *families) choose(p isolation.Plan) (f *family, done func(), err error) {
	f, done, err = fs.ofImage(p.Image)
	if err != nil || p.Mentions == nil {
		return f, done, err
	}
	for _, module := range fs.sets(f.image) {
		if !p.Mentions(module) {
			continue
		}
		set, letGo, err := fs.hold(familyKey{f.key.image, module}, f.image)
		if err != nil {
			break // the program imports for itself
		}
		if set.awake() {
			done()
			return set, letGo, nil
		}
		letGo()
		break
	}
	return f, done, nil
}

// sets are the modules that deserve a family in an image.
func (fs *families) sets(image *images.Image) []string {
	if image == fs.engine.cfg.Image {
		return fs.engine.cfg.PreloadSets
	}
	var sets []string
	for _, module := range fs.engine.cfg.PreloadSets {
		if slices.Contains(image.Preload, module) {
			sets = append(sets, module)
		}
	}
	return sets
}

// ofImage gives the family of an image and no more than the usual modules.
func (fs *families) ofImage(reference string) (*family, func(), error) {
	use, err := images.Choose(fs.engine.cfg.Image, fs.engine.cfg.Images, reference)
	if err != nil {
		return nil, nil, err
	}
	defer use.Release() // the family takes one of its own
	if use.Image == fs.engine.cfg.Image {
		return fs.usual, func() {}, nil
	}
	return fs.hold(familyKey{image: use.Image.Digest}, use.Image)
}

// hold gives a family, and keeps it until it is let go. The caller holds the image.
func (fs *families) hold(key familyKey, image *images.Image) (*family, func(), error) {
	f, letGo, err := fs.others.Hold(key, func() (*family, error) {
		use, err := images.Choose(fs.engine.cfg.Image, fs.engine.cfg.Images, key.image)
		if err != nil {
			return nil, err
		}
		f, err := newFamily(fs.engine, key, image, use)
		if err != nil {
			use.Release()
		}
		return f, err
	})
	if errors.Is(err, pool.ErrClosed) {
		err = sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine native", "%w", err)
	}
	return f, letGo, err
}

// all are the families that can be chosen.
func (fs *families) all() []*family { return append([]*family{fs.usual}, fs.others.All()...) }

func (fs *families) close() error { return errors.Join(fs.others.Close(), fs.usual.Close()) }

// Boot implements pool.Kind. A preload set that cannot be had stays, so that it is
// not tried again as long as programs ask for it: they run all the same, and import
// for themselves.
func (f *family) Boot() bool {
	z, err := f.ready(context.Background())
	if err != nil {
		f.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "zygote not booted", f.describe(err)...)
		return f.key.module != ""
	}
	z.users.Add(-1)
	f.pool.Touch() // its boot was no idle time
	f.pool.Start()
	return true
}

// Touch implements pool.Kind.
func (f *family) Touch() { f.pool.Touch() }

// Idle implements pool.Kind.
func (f *family) Idle() time.Duration { return f.pool.Idle() }

// Retire implements pool.Kind.
func (f *family) Retire() { f.pool.Close() }

// Deserted implements pool.Kind.
func (f *family) Deserted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retire()
	return !slices.ContainsFunc(f.retired, func(z *zygote) bool { return z.alive() && z.users.Load() > 0 })
}

// Close implements pool.Kind: it ends everything; no sandbox that was handed out
// may be live.
func (f *family) Close() error {
	f.pool.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.retire()
	err := f.buryRetired(true)
	if f.use != nil {
		f.use.Release()
	}
	if err != nil {
		f.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelError, "end zygote", f.describe(err)...)
	}
	return err
}
