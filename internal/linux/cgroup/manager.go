//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/rollback"
)

// DefaultRoot is where distributions mount cgroups (hier(7), systemd).
const DefaultRoot = "/sys/fs/cgroup"

// Config says where a Manager works.
type Config struct {
	// Root is the cgroup mount point, or the directory with the v1 mounts.
	Root string
	// Parent is the daemon's own directory below Root, absolute as in
	// /proc/self/cgroup: "/sandboxd-main". Everything in it is the daemon's.
	Parent string
}

// Manager makes groups below one parent.
type Manager struct {
	tree   tree
	parent string
}

// tree is what differs between cgroup versions.
type tree interface {
	// parents lists the daemon's directory in each hierarchy, each once.
	parents() ([]string, error)
	// dirs lists the directories that a group with these limits needs.
	dirs(name string, l Limits) ([]string, error)
	// apply writes the limits of new directories.
	apply(name string, l Limits) error
	// update changes the limits of a group in use.
	update(name string, l Limits) error
	// files names the files that a group is attached and measured by.
	files(name string) groupFiles
	// probes lists what Probe tries.
	probes() []probe
	// swapOpen says why a group's memory may go to swap, nil if it may not.
	swapOpen(name string) error
}

// New returns a Manager. It makes nothing; the first Create makes the parent.
func New(cfg Config) (*Manager, error) {
	if !filepath.IsAbs(cfg.Root) {
		return nil, fmt.Errorf("cgroup root %q is not absolute", cfg.Root)
	}
	if cfg.Parent != filepath.Clean(cfg.Parent) || !filepath.IsAbs(cfg.Parent) || cfg.Parent == "/" {
		return nil, fmt.Errorf("cgroup parent %q is not a clean absolute path below the root", cfg.Parent)
	}
	unified, err := isUnified(cfg.Root)
	if err != nil {
		return nil, err
	}
	if unified {
		return &Manager{tree: v2{root: cfg.Root, parent: cfg.Parent}, parent: cfg.Parent}, nil
	}
	return &Manager{tree: v1{root: cfg.Root, parent: cfg.Parent}, parent: cfg.Parent}, nil
}

// isUnified tells v2 from v1 and hybrid, where controllers are on v1. The library
// knows only the default root; others are judged by their files.
func isUnified(root string) (bool, error) {
	if root == DefaultRoot {
		switch cgroups.Mode() {
		case cgroups.Unified:
			return true, nil
		case cgroups.Legacy, cgroups.Hybrid:
			return false, nil
		}
		return false, fmt.Errorf("no cgroups at %s", root)
	}
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Version is 1 or 2: where the memory, pids and cpu controllers are.
func (m *Manager) Version() int {
	if _, unified := m.tree.(v2); unified {
		return 2
	}
	return 1
}

// Path is that of a group below the root of each hierarchy, for runtimes that join
// it by name.
func (m *Manager) Path(name string) string { return filepath.Join(m.parent, name) }

// Hybrid is where the unified tree is mounted beside controllers on v1, empty
// where it is not.
func (m *Manager) Hybrid() string {
	tree, legacy := m.tree.(v1)
	if !legacy {
		return ""
	}
	dir := filepath.Join(tree.root, "unified")
	if !exists(filepath.Join(dir, "cgroup.controllers")) {
		return ""
	}
	return dir
}

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Create makes a group that does not exist yet and sets its limits. name is
// lower case letters, digits, "-" and "_", at most 64.
func (m *Manager) Create(name string, l Limits) (g *Group, err error) {
	if !groupName.MatchString(name) {
		return nil, fmt.Errorf("create cgroup: bad name %q", name)
	}
	if err := l.validate(); err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", name, err)
	}
	dirs, err := m.tree.dirs(name, l)
	if err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", name, err)
	}
	var undo rollback.Stack
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create cgroup %s: %w", name, err), undo.Rollback())
		}
	}()
	for _, dir := range dirs {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
		undo.Add("remove "+dir, func() error { return removeFresh(dir) })
	}
	if err := m.tree.apply(name, l); err != nil {
		return nil, err
	}
	return open(name, m.tree, dirs, l)
}

// makeDir makes a group's directory, and its parents where they are missing. An
// existing group is an error: it may hold somebody's processes.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// undoTimeout bounds the removal of a group that nobody has joined yet.
const undoTimeout = 2 * time.Second

func removeFresh(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	return removeDir(ctx, dir)
}

// Close removes the daemon's own directories. Groups still in them are an error.
func (m *Manager) Close() error {
	parents, err := m.tree.parents()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range parents {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
