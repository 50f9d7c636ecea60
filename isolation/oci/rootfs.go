package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

// rootfs is an image as containers get it: its tree, put together in the engine's
// mount namespace, and the pool of what waits in it.
type rootfs struct {
	engine *Engine
	image  *images.Image
	use    *images.Use
	pool   *pool.Pool[*liveSandbox]
	live   atomic.Int64 // containers that are made of it, or being made

	mu    sync.Mutex
	built bool
}

func newRootfs(e *Engine, use *images.Use) (*rootfs, error) {
	r := &rootfs{engine: e, image: use.Image, use: use}
	var err error
	r.pool, err = pool.New(pool.Config[*liveSandbox]{
		Engine: e.Name(), Log: e.cfg.Log, Most: e.cfg.Ready, Least: leastReady, ShrinkAfter: shrinkAfter,
		Busy: e.busy,
		Fill: func(ctx context.Context) (*liveSandbox, error) { return e.make(ctx, r, sandbox.DefaultLimits()) },
	})
	return r, err
}

// path is where runtimes find the tree, in the engine's mount namespace.
func (r *rootfs) path() string {
	_, digits, _ := strings.Cut(r.image.Digest, ":")
	return filepath.Join(r.engine.dirs().rootfs, digits)
}

// build puts the tree together where that is not done yet.
func (r *rootfs) build() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.built {
		return nil
	}
	apart, err := r.engine.namespace()
	if err != nil {
		return err
	}
	if err := os.Mkdir(r.path(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("put image together: %w", err)
	}
	parts := partsOf(r.image)
	parts.Bare = r.engine.traits.ownKernel
	if err := apart.Build(r.path(), parts); err != nil {
		return fmt.Errorf("put image together: %w", err)
	}
	r.built = true
	return nil
}

// partsOf lists what an image's tree is made of. /tmp has the mode that runc gives
// to what it mounts there.
func partsOf(image *images.Image) mountns.Root {
	parts := mountns.Root{
		Dirs:   append([]string{"/dev", isolation.Workspace}, image.Dirs...),
		Sticky: []string{"/tmp"},
	}
	for _, b := range image.Binds {
		parts.Binds = append(parts.Binds, mountns.Bind{Source: b.Source, Target: b.Target})
	}
	for _, f := range image.Files {
		parts.Files = append(parts.Files, mountns.File{Path: f.Path, Mode: f.Mode & 0o777, Data: f.Data})
	}
	for _, l := range image.Symlinks {
		parts.Symlinks = append(parts.Symlinks, mountns.Symlink{Path: l.Path, Target: l.Target})
	}
	return parts
}

// choose gives the image for a run, and keeps it until done is called.
func (e *Engine) choose(reference string) (r *rootfs, done func(), err error) {
	use, err := images.Choose(e.cfg.Image, e.cfg.Images, reference)
	if err != nil {
		return nil, nil, err
	}
	defer use.Release() // the tree takes one of its own
	if use.Image == e.cfg.Image {
		return e.usual, func() {}, nil
	}
	r, done, err = e.others.Hold(use.Image.Digest, func() (*rootfs, error) {
		own, err := e.cfg.Images.Acquire(use.Image.Digest)
		if err != nil {
			return nil, err
		}
		r, err := newRootfs(e, own)
		if err != nil {
			own.Release()
		}
		return r, err
	})
	if errors.Is(err, pool.ErrClosed) {
		err = e.errClosed()
	}
	return r, done, err
}

// Boot implements pool.Kind.
func (r *rootfs) Boot() bool {
	if err := r.build(); err != nil {
		r.engine.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "image not put together",
			slog.String("engine", r.engine.Name()), slog.String("image", r.image.Name), slog.Any("err", err))
		return false
	}
	r.pool.Start()
	return true
}

// Touch implements pool.Kind.
func (r *rootfs) Touch() { r.pool.Touch() }

// Idle implements pool.Kind.
func (r *rootfs) Idle() time.Duration { return r.pool.Idle() }

// Retire implements pool.Kind.
func (r *rootfs) Retire() { r.pool.Close() }

// Deserted implements pool.Kind.
func (r *rootfs) Deserted() bool { return r.live.Load() == 0 }

// Close implements pool.Kind.
func (r *rootfs) Close() error {
	r.pool.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.built {
		r.built = false
		err = r.engine.takeDown(r.path())
	}
	r.use.Release()
	return err
}
