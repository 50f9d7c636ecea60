//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Reap kills and removes every group below the parent, in every hierarchy. It is
// for what a dead daemon left: the caller must have no group yet. It goes on
// after errors and returns them joined.
func (m *Manager) Reap(ctx context.Context) error {
	parents, err := m.tree.parents()
	if err != nil {
		return fmt.Errorf("reap cgroups: %w", err)
	}
	var errs []error
	// Killing in the pids hierarchy stops forks, so it comes first.
	for _, parent := range pidsFirst(parents) {
		groups, err := below(parent)
		errs = append(errs, err)
		for _, dir := range groups {
			errs = append(errs, reapDir(ctx, dir))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reap cgroups: %w", err)
	}
	return nil
}

func pidsFirst(parents []string) []string {
	var first, others []string
	for _, dir := range parents {
		if exists(filepath.Join(dir, "pids.current")) {
			first = append(first, dir)
		} else {
			others = append(others, dir)
		}
	}
	return append(first, others...)
}

// Sweep kills and removes what is left of a group in any hierarchy, those that
// this package makes none in included: an OCI runtime joins every one that is
// mounted.
func (m *Manager) Sweep(ctx context.Context, name string) error {
	if !groupName.MatchString(name) {
		return fmt.Errorf("sweep cgroup: bad name %q", name)
	}
	parents, err := m.tree.parents()
	if err != nil {
		return fmt.Errorf("sweep cgroup %s: %w", name, err)
	}
	var errs []error
	for _, parent := range pidsFirst(parents) {
		if dir := filepath.Join(parent, name); exists(dir) {
			errs = append(errs, reapDir(ctx, dir))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep cgroup %s: %w", name, err)
	}
	return nil
}

// reapDir ends one group. Each hierarchy is emptied by its own list: a daemon
// that died in the middle of an attach leaves a process in some of them only.
func reapDir(ctx context.Context, dir string) error {
	err := killAll(ctx, filepath.Join(dir, "cgroup.procs"), filepath.Join(dir, "pids.max"))
	if err != nil {
		return fmt.Errorf("kill %s: %w", dir, err)
	}
	return removeDir(ctx, dir)
}

// below lists the groups under dir, children before parents, dir itself left out.
func below(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		child := filepath.Join(dir, entry.Name())
		deeper, err := below(child)
		if err != nil {
			return nil, err
		}
		out = append(append(out, deeper...), child)
	}
	return out, nil
}
