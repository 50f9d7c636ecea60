package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/build"
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
		Engine:   dockerEngine(cfg),
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
	engine source.Engine // that builds
	log    *slog.Logger
}

func newShelf(cfg *config.Config, stored *store.Store, log *slog.Logger) *shelf {
	return &shelf{store: stored, limits: importLimits(cfg), engine: dockerEngine(cfg), log: log}
}

func dockerEngine(cfg *config.Config) source.Engine {
	d := cfg.Images.Docker
	return source.Engine{Host: d.Host, CA: d.TLSCA, Cert: d.TLSCert, Key: d.TLSKey}
}

// checkImages tells what is wrong with the sources of images.
func checkImages(cfg *config.Config) error {
	if err := dockerEngine(cfg).Validate(); err != nil {
		return fmt.Errorf("images.docker: %w", err)
	}
	return nil
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
	if o.Archive != nil {
		r.Stream, r.Kind, r.Tag = o.Archive, source.Kind(o.Form), o.Tag
		return s.store.Import(ctx, r)
	}
	built := o.Base != "" || len(o.Requirements) > 0 || o.Network
	switch o.Source {
	case sandbox.ImageBuild:
		if o.Reference != "" {
			return sandbox.Image{}, wrong("reference", "a build has a base instead")
		}
		return s.build(ctx, o, r, progress)
	case sandbox.ImageDocker:
		r.Kind = source.DockerEngine
	case sandbox.ImageRegistry:
	default:
		return sandbox.Image{}, wrong("source", fmt.Sprintf("there is no source %q", o.Source))
	}
	switch {
	case o.Reference == "":
		return sandbox.Image{}, wrong("reference", "it says which image, and is missing")
	case built:
		return sandbox.Image{}, wrong("source", "base, requirements and network are for a build")
	}
	r.Reference = o.Reference
	return s.store.Import(ctx, r)
}

func wrong(field, text string) error {
	return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "admit", Subject: field, Err: errors.New(text)}
}

// removalTime bounds the removal of what was built from the Engine.
const removalTime = time.Minute

// build has the Engine build an image, and takes it over.
func (s *shelf) build(ctx context.Context, o catalog.Order, r store.Request, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	if err := store.CheckName(r.Name); err != nil { // a build takes long
		return sandbox.Image{}, err
	}
	ordered := build.Request{Base: o.Base, Requirements: o.Requirements, Network: o.Network}
	id, err := build.Python(ctx, s.engine, ordered, func(p build.Progress) {
		progress(sandbox.ImageProgress{Phase: "build", Step: p.Step, Steps: p.Steps, Text: p.Text})
	})
	if err != nil {
		return sandbox.Image{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
		defer cancel()
		if err := build.Remove(ctx, s.engine, id); err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "remove built image from the Engine", slog.String("image", id), slog.Any("err", err))
		}
	}()
	r.Kind, r.Reference = source.DockerEngine, id
	return s.store.Import(ctx, r)
}

// Remove implements catalog.Writer.
func (s *shelf) Remove(reference string) error { return s.store.Remove(reference) }

// Collect implements catalog.Writer.
func (s *shelf) Collect(ctx context.Context, g catalog.Garbage) ([]sandbox.Image, error) {
	return s.store.GC(ctx, store.Policy{UnusedFor: g.UnusedFor, Bytes: g.Bytes, Keep: g.Keep})
}
