package native

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// evictAfter is how long a family may go unused before its zygote ends, and
// evictPause how often that is looked at.
const (
	evictAfter = 10 * time.Minute
	evictPause = 15 * time.Second
)

// MostFamilies is how many families are up at once beside the usual one: each
// costs some 30 MiB and its ready sandboxes. When one more is needed, that goes
// which was not used for longest.
const MostFamilies = 8

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
	most   int           // MostFamilies
	after  time.Duration // evictAfter
	pause  time.Duration // evictPause

	mu       sync.Mutex
	others   map[familyKey]*family // those that are up, or being booted
	closed   bool
	stop     chan struct{}
	keepers  sync.WaitGroup
	unclosed []error
}

func newFamilies(e *Engine) (*families, error) {
	usual, err := newFamily(e, familyKey{image: e.cfg.Image.Digest}, e.cfg.Image, nil)
	return &families{
		engine: e, usual: usual, most: MostFamilies, after: evictAfter, pause: evictPause,
		others: map[familyKey]*family{}, stop: make(chan struct{}),
	}, err
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
	own := fs.engine.cfg.Image
	if reference == "" || reference == own.Name || reference == own.Digest {
		return fs.usual, func() {}, nil
	}
	if fs.engine.cfg.Images == nil {
		return nil, nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "image", "engine native has only %s, not %.80q", own.Name, reference)
	}
	use, err := fs.engine.cfg.Images.Acquire(reference)
	if err != nil {
		return nil, nil, err
	}
	defer use.Release() // the family takes one of its own
	if use.Image.Digest == own.Digest {
		return fs.usual, func() {}, nil
	}
	return fs.hold(familyKey{image: use.Image.Digest}, use.Image)
}

// hold gives a family, which is booted if it is not up, and keeps it until it is
// let go. The caller holds the image.
func (fs *families) hold(key familyKey, image *images.Image) (*family, func(), error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		return nil, nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine native", "it is closed")
	}
	f := fs.others[key]
	if f == nil {
		var err error
		if f, err = fs.add(key, image); err != nil {
			return nil, nil, err
		}
	}
	f.holders++
	f.pool.Touch()
	return f, sync.OnceFunc(func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		f.holders--
	}), nil
}

// add makes a family and has it booted. The caller holds the lock.
func (fs *families) add(key familyKey, image *images.Image) (*family, error) {
	var use *images.Use
	if image != fs.engine.cfg.Image {
		var err error
		if use, err = fs.engine.cfg.Images.Acquire(key.image); err != nil {
			return nil, err
		}
	}
	f, err := newFamily(fs.engine, key, image, use)
	if err != nil {
		if use != nil {
			use.Release()
		}
		return nil, err
	}
	fs.makeRoom()
	fs.others[key] = f
	fs.keepers.Go(func() { fs.keep(f) })
	return f, nil
}

// makeRoom has the family go that was not used for longest when there are as many
// as there may be. The caller holds the lock.
func (fs *families) makeRoom() {
	if len(fs.others) < fs.most {
		return
	}
	var oldest *family
	for _, f := range fs.others {
		if oldest == nil || f.pool.Idle() > oldest.pool.Idle() {
			oldest = f
		}
	}
	fs.dismiss(oldest)
}

// keep owns a family from its boot until it is evicted or the engine closes.
func (fs *families) keep(f *family) {
	tick := time.NewTicker(fs.pause)
	defer tick.Stop()
	fs.boot(f)
	fs.awaitEviction(f, tick.C)
	f.pool.Close()
	for !fs.left(f) {
		select {
		case <-fs.stop: // no sandbox is live
		case <-tick.C:
			continue
		}
		break
	}
	if err := f.close(); err != nil {
		fs.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelError, "evict zygote", f.describe(err)...)
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.unclosed = append(fs.unclosed, err)
	}
}

// boot starts a family. A preload set that cannot be had is not tried again as
// long as programs ask for it: they run all the same, and import for themselves.
// An image is tried again by the next run that names it.
func (fs *families) boot(f *family) {
	z, err := f.ready(context.Background())
	if err != nil {
		fs.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "zygote not booted", f.describe(err)...)
		if f.key.module == "" {
			fs.mu.Lock()
			defer fs.mu.Unlock()
			fs.dismiss(f)
		}
		return
	}
	z.users.Add(-1)
	f.pool.Touch() // its boot was no idle time
	f.pool.Start()
}

// awaitEviction returns when nobody can choose the family any more.
func (fs *families) awaitEviction(f *family, tick <-chan time.Time) {
	for {
		select {
		case <-fs.stop:
			return
		case <-f.evicted:
			return
		case <-tick:
		}
		if f.pool.Idle() > fs.after {
			fs.mu.Lock()
			fs.dismiss(f)
			fs.mu.Unlock()
		}
	}
}

// dismiss takes a family from those that can be chosen. The caller holds the lock.
func (fs *families) dismiss(f *family) {
	if fs.others[f.key] == f {
		delete(fs.others, f.key)
		close(f.evicted)
	}
}

// left tells whether nobody makes a sandbox of an evicted family, and none is left.
func (fs *families) left(f *family) bool {
	fs.mu.Lock()
	held := f.holders > 0
	fs.mu.Unlock()
	return !held && f.deserted()
}

// all are the families that can be chosen.
func (fs *families) all() []*family {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := []*family{fs.usual}
	for _, f := range fs.others {
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
	return errors.Join(append(fs.unclosed, fs.usual.close())...)
}
