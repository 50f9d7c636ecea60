package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/images/store"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
)

// openImages opens the image store. A machine without a Python of its own has
// stored images alone.
func openImages(ctx context.Context, cfg *config.Config, log *slog.Logger) (*store.Store, error) {
	section, err := newNativeSection(newHost(cfg, log, nil), cfg.Engine[native.Name])
	if err != nil {
		return nil, fmt.Errorf("engine.%s: %w", native.Name, err)
	}
	host, err := images.Host(ctx, images.HostConfig{Python: section.Python})
	if err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "no host image", slog.Any("err", err))
		host = nil
	}
	return store.Open(store.Config{
		Dir: cfg.ImagesDir(), Arch: runtime.GOARCH, Log: log, Host: host,
		Limits: importLimits(cfg), Bytes: cfg.Images.StoreBytes,
		Preload:  section.PreloadSets,
		Registry: source.Registry{Insecure: cfg.Images.InsecureRegistries},
	})
}

func importLimits(cfg *config.Config) unpack.Limits {
	limits := unpack.DefaultLimits()
	limits.Bytes, limits.Entries = cfg.Images.ImportBytes, cfg.Images.ImportEntries
	return limits
}

// shelf is the image store as the daemon knows it.
type shelf struct {
	store  *store.Store
	limits unpack.Limits
}

// List implements catalog.Reader.
func (s *shelf) List() []sandbox.Image { return s.store.List() }

// Inspect implements catalog.Reader.
func (s *shelf) Inspect(reference string) (sandbox.Image, error) { return s.store.Inspect(reference) }

// Acquire implements catalog.Reader.
func (s *shelf) Acquire(reference string) (sandbox.Image, func(), error) {
	use, err := s.store.Acquire(reference)
	if err != nil {
		return sandbox.Image{}, nil, err
	}
	image, err := s.store.Inspect(use.Image.Digest) // it stays, so this is the same
	if err != nil {
		use.Release()
		return sandbox.Image{}, nil, err
	}
	return image, use.Release, nil
}

// MostArchive implements catalog.Writer.
func (s *shelf) MostArchive() int64 { return s.limits.StreamBytes() }

// Import implements catalog.Writer.
func (s *shelf) Import(ctx context.Context, o catalog.Order, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	r := store.Request{Name: o.Name, Progress: func(p store.Progress) {
		progress(sandbox.ImageProgress{Phase: string(p.Phase), DoneBytes: p.Done, TotalBytes: p.Total})
	}}
	switch {
	case o.Archive != nil:
		r.Stream, r.Kind, r.Tag = o.Archive, source.Kind(o.Form), o.Tag
	case o.Source == sandbox.ImageRegistry:
		r.Reference = o.Reference
	default:
		return sandbox.Image{}, sandbox.Errorf(sandbox.KindInvalid, "import image", "source", "there is no source %q", o.Source)
	}
	if o.Archive == nil && o.Reference == "" {
		return sandbox.Image{}, &sandbox.Error{
			Kind: sandbox.KindInvalid, Op: "import image", Subject: "reference", Err: errors.New("it says which image, and is missing"),
		}
	}
	return s.store.Import(ctx, r)
}

// Remove implements catalog.Writer.
func (s *shelf) Remove(reference string) error { return s.store.Remove(reference) }

// Collect implements catalog.Writer.
func (s *shelf) Collect(ctx context.Context, g catalog.Garbage) ([]sandbox.Image, error) {
	return s.store.GC(ctx, store.Policy{UnusedFor: g.UnusedFor, Bytes: g.Bytes, Keep: g.Keep})
}
