package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/isolation/process"
)

// engineMaker makes one engine from its section of the configuration.
type engineMaker struct {
	name    string
	section string // of the configuration; several engines may share one
	check   func(h host, section map[string]any) error
	make    func(ctx context.Context, h host, section map[string]any) (isolation.Engine, error)
}

// engineMakers is the list of engines, strongest first. A new one is one line
// here. One whose maker gives nil is not asked for by the configuration.
func engineMakers() []engineMaker {
	return []engineMaker{
		{native.Name, native.Name, checkSection(newNativeSection), makeNative},
		{oci.Runsc, ociName, checkSection(newOCISection), makeOCI(oci.Runsc)},
		{oci.Crun, ociName, checkSection(newOCISection), makeOCI(oci.Crun)},
		{oci.Runc, ociName, checkSection(newOCISection), makeOCI(oci.Runc)},
		{docker.Name, docker.Name, checkSection(newDockerSection), makeDocker},
		{process.Name, process.Name, checkSection(newProcessSection), makeProcess},
	}
}

// host is what engines share of this machine.
type host struct {
	stateDir  string
	sandboxes uint32 // live at once
	log       *slog.Logger
	images    images.Source // stored ones
	// defaultImage is the configured one of runs that name none, empty for the
	// engine's own.
	defaultImage string
}

func newHost(cfg *config.Config, log *slog.Logger, images images.Source) host {
	// Sandboxes being removed keep their ids for a moment; a probe needs one.
	const spare = 16
	return host{stateDir: cfg.StateDir, log: log, images: images, defaultImage: cfg.Images.Default, sandboxes: uint32(cfg.Admission.MaxConcurrent) + spare} //nolint:gosec // validated to be small
}

// makeEngines makes every engine, in the order in which they are shown. One that
// cannot be made on this machine is left out with a word to the log: the others
// can serve all the same, and a request for it is refused.
func makeEngines(ctx context.Context, cfg *config.Config, log *slog.Logger, images images.Source) ([]isolation.Engine, error) {
	if err := checkEngines(cfg); err != nil {
		return nil, err
	}
	var engines []isolation.Engine
	for _, m := range engineMakers() {
		e, err := m.make(ctx, newHost(cfg, log, images), cfg.Engine[m.section])
		if err != nil {
			log.LogAttrs(ctx, slog.LevelError, "engine left out", slog.String("engine", m.name), slog.Any("err", err))
			continue
		}
		if e != nil {
			engines = append(engines, e)
		}
	}
	return engines, nil
}

// checkEngines tells what is wrong with the engines' own sections.
func checkEngines(cfg *config.Config) error {
	var errs []error
	for name := range cfg.Engine {
		if !slices.ContainsFunc(engineMakers(), func(m engineMaker) bool { return m.section == name }) {
			errs = append(errs, fmt.Errorf("engine.%s: no engine has such a section", name))
		}
	}
	if allowed := cfg.Engines.Allowed; allowed != nil {
		for _, name := range *allowed {
			if !slices.ContainsFunc(engineMakers(), func(m engineMaker) bool { return m.name == name }) {
				errs = append(errs, fmt.Errorf("engines.allowed: no engine is called %q", name))
			}
		}
	}
	checked := map[string]bool{}
	for _, m := range engineMakers() {
		if checked[m.section] {
			continue
		}
		checked[m.section] = true
		if err := m.check(newHost(cfg, nil, nil), cfg.Engine[m.section]); err != nil {
			errs = append(errs, fmt.Errorf("engine.%s: %w", m.section, err))
		}
	}
	return errors.Join(errs...)
}

func checkSection[T any](read func(host, map[string]any) (T, error)) func(host, map[string]any) error {
	return func(h host, section map[string]any) error {
		_, err := read(h, section)
		return err
	}
}

// decode fills into from a raw section and refuses unknown keys.
func decode(section map[string]any, into any) error {
	text, err := toml.Marshal(section)
	if err != nil {
		return err
	}
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		return fmt.Errorf("unknown key %v", unknown.Errors[0].Key())
	}
	return err
}

// nativeSection is [engine.native].
type nativeSection struct {
	Python       string   `toml:"python"`        // absolute path; the distribution's by default
	UIDBase      uint32   `toml:"uid_base"`      // first host id
	CgroupParent string   `toml:"cgroup_parent"` // a cgroup that is the daemon's alone
	Preload      []string `toml:"preload"`       // modules that every zygote imports
	PreloadSets  []string `toml:"preload_sets"`  // modules that get a zygote of their own, when programs name them
	Ready        int      `toml:"ready"`         // sandboxes kept ready for the next runs of an image and preload set, at most
	ReadyBytes   int64    `toml:"ready_bytes"`   // what these may hold of memory
}

// What is kept ready unless configuration says otherwise: enough for a burst on
// all of a small machine, within memory that nobody misses.
const (
	mostReady       = 512
	usualReady      = 32
	usualReadyBytes = 128 << 20
)

func newNativeSection(h host, raw map[string]any) (nativeSection, error) {
	own := h.ownership()
	s := nativeSection{
		UIDBase: own.uidBase, CgroupParent: own.cgroup, Preload: defaultPreload(), PreloadSets: []string{"numpy"},
		Ready: usualReady, ReadyBytes: usualReadyBytes,
	}
	if err := decode(raw, &s); err != nil {
		return s, err
	}
	if s.Ready < 0 || s.Ready > mostReady {
		return s, fmt.Errorf("ready: %d is not between 0 and %d", s.Ready, mostReady)
	}
	if s.ReadyBytes < 0 {
		return s, fmt.Errorf("ready_bytes: %d is negative", s.ReadyBytes)
	}
	if err := checkIDs(s.UIDBase, isolation.IDsPerSandbox*(h.sandboxes+s.readySandboxes()+1)); err != nil { //nolint:gosec // as checked
		return s, fmt.Errorf("uid_base: %w", err)
	}
	return s, nil
}

func makeNative(ctx context.Context, h host, raw map[string]any) (isolation.Engine, error) {
	s, err := newNativeSection(h, raw)
	if err != nil {
		return nil, err
	}
	image, err := images.Host(ctx, images.HostConfig{Python: s.Python})
	if err != nil {
		return nil, err
	}
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: s.CgroupParent})
	if err != nil {
		return nil, err
	}
	return native.New(native.Config{
		Image: image, Images: h.images, Cgroups: groups, Arch: runtime.GOARCH, Log: h.log,
		UIDBase: s.UIDBase, Preload: s.Preload, PreloadSets: s.PreloadSets,
		Sandboxes: h.sandboxes + s.readySandboxes(), Ready: s.Ready, ReadyBytes: s.ReadyBytes,
	})
}

// readySandboxes is how many may be ready at once: of each image and preload set.
func (s *nativeSection) readySandboxes() uint32 {
	return uint32(s.Ready * (1 + native.MostFamilies)) //nolint:gosec // both are small, and ids are checked
}

// defaultPreload is what solutions import most from the standard library.
func defaultPreload() []string {
	return []string{
		"abc", "array", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum",
		"fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator", "os", "random",
		"re", "statistics", "string", "sys", "time", "typing",
	}
}

// processSection is [engine.process].
type processSection struct {
	Python  string `toml:"python"`
	UIDBase uint32 `toml:"uid_base"`
}

func newProcessSection(h host, raw map[string]any) (processSection, error) {
	s := processSection{UIDBase: h.ownership().uidBase + idsPerDaemon/2}
	if err := decode(raw, &s); err != nil {
		return s, err
	}
	if err := checkIDs(s.UIDBase, h.sandboxes); err != nil {
		return s, fmt.Errorf("uid_base: %w", err)
	}
	return s, nil
}

func makeProcess(ctx context.Context, h host, raw map[string]any) (isolation.Engine, error) {
	s, err := newProcessSection(h, raw)
	if err != nil {
		return nil, err
	}
	image, err := images.Host(ctx, images.HostConfig{Python: s.Python})
	if err != nil {
		return nil, err
	}
	return process.New(process.Config{
		Image: image, Python: cmp.Or(s.Python, images.DefaultPython), Arch: runtime.GOARCH,
		Dir: filepath.Join(h.stateDir, "process"), Log: h.log, UIDBase: s.UIDBase, Sandboxes: h.sandboxes,
	})
}

// ownership is what a daemon calls its own on a machine.
type ownership struct {
	uidBase uint32
	cgroup  string
}

const (
	systemStateDir = "/var/lib/sandboxd"
	firstUIDBase   = 1_000_000
	idsPerDaemon   = 65_536
	daemonSlots    = 1000
)

// ownership is the same for the same state directory, so that a daemon finds
// what its dead predecessor left, and another for any other, so that two daemons
// on one machine do not share ids or cgroups.
func (h host) ownership() ownership {
	o := ownership{uidBase: firstUIDBase, cgroup: "/sandboxd"}
	if dir := filepath.Clean(h.stateDir); dir != systemStateDir {
		sum := sha256.Sum256([]byte(dir))
		o.uidBase += idsPerDaemon * (1 + binary.BigEndian.Uint32(sum[:4])%daemonSlots)
		o.cgroup += "-" + hex.EncodeToString(sum[:6])
	}
	return o
}
