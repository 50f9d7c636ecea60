package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/oci"
)

const ociName = "oci"

// ociSection is [engine.oci]: one engine for each runtime that it names. Without
// the section there is none, because each is tried out when the daemon starts.
type ociSection struct {
	Runtimes     []string          `toml:"runtimes"`      // which to offer; all by default
	Programs     map[string]string `toml:"programs"`      // by runtime: its path
	MinVersion   map[string]string `toml:"min_version"`   // by runtime: instead of the oldest that was tested
	Python       string            `toml:"python"`        // absolute path; the distribution's by default
	UIDBase      uint32            `toml:"uid_base"`      // first host id
	CgroupParent string            `toml:"cgroup_parent"` // a cgroup that is the daemon's alone; each runtime's name is added
	Ready        int               `toml:"ready"`         // sandboxes kept ready by each, at most, once it is used
}

// usualReadyContainers are kept by each runtime: one holds about as much memory as
// an interpreter.
const usualReadyContainers = 8

func newOCISection(h host, raw map[string]any) (ociSection, error) {
	own := h.ownership()
	s := ociSection{UIDBase: own.uidBase + idsPerDaemon*3/4, CgroupParent: own.cgroup, Ready: usualReadyContainers}
	if raw == nil {
		return s, nil
	}
	s.Runtimes = oci.Names()
	if err := decode(raw, &s); err != nil {
		return s, err
	}
	var errs []error
	known := func(key string, names []string) {
		for _, name := range names {
			if !slices.Contains(oci.Names(), name) {
				errs = append(errs, fmt.Errorf("%s: no runtime is called %q", key, name))
			}
		}
	}
	known("runtimes", s.Runtimes)
	known("programs", slices.Collect(maps.Keys(s.Programs)))
	known("min_version", slices.Collect(maps.Keys(s.MinVersion)))
	if s.Ready < 0 || s.Ready > mostReady {
		errs = append(errs, fmt.Errorf("ready: %d is not between 0 and %d", s.Ready, mostReady))
	} else if err := checkIDs(s.UIDBase, s.idsEach(h)*uint32(len(oci.Names()))); err != nil { //nolint:gosec // three
		errs = append(errs, fmt.Errorf("uid_base: %w", err))
	}
	return s, errors.Join(errs...)
}

// sandboxes is how many of one runtime may exist at once.
func (s *ociSection) sandboxes(h host) uint32 { return h.sandboxes + uint32(s.Ready) } //nolint:gosec // as checked

func (s *ociSection) idsEach(h host) uint32 { return isolation.IDsPerSandbox * s.sandboxes(h) }

func makeOCI(name string) func(context.Context, host, map[string]any) (isolation.Engine, error) {
	return func(ctx context.Context, h host, raw map[string]any) (isolation.Engine, error) {
		s, err := newOCISection(h, raw)
		if err != nil || !slices.Contains(s.Runtimes, name) {
			return nil, err
		}
		image, err := images.Host(ctx, images.HostConfig{Python: s.Python})
		if err != nil {
			return nil, err
		}
		groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: s.CgroupParent + "-" + name})
		if err != nil {
			return nil, err
		}
		place := uint32(slices.Index(oci.Names(), name)) //nolint:gosec // it is among them
		return oci.New(oci.Config{
			Runtime: name, Program: s.Programs[name], MinVersion: s.MinVersion[name],
			Image: image, Images: h.images, Cgroups: groups, Arch: runtime.GOARCH, Log: h.log,
			Dir:       filepath.Join(h.stateDir, ociName, name),
			UIDBase:   s.UIDBase + place*s.idsEach(h),
			Sandboxes: s.sandboxes(h), Ready: s.Ready,
		})
	}
}
