//go:build linux

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestManager_SweepsEveryHierarchy: a runtime makes its group in hierarchies that
// this package has no use for.
func TestManager_SweepsEveryHierarchy(t *testing.T) {
	m := newManager(t)
	g, err := m.Create("container", roomy)
	if err != nil {
		t.Fatal(err)
	}
	parents, err := m.tree.parents()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range parents {
		if err := os.MkdirAll(filepath.Join(dir, "container"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, _ := startMember(t, g, "sleep", "")
	waitMembers(t, g, 1)
	for range 2 { // what is gone is no error
		if err := m.Sweep(within(t), "container"); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a member outlived the sweep")
	}
	for _, dir := range parents {
		if _, err := os.Stat(filepath.Join(dir, "container")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/container is left", dir)
		}
	}
	if err := g.Delete(within(t)); err != nil {
		t.Error(err)
	}
}

// TestGroup_StartAccount: what a group used before its run is not the run's.
func TestGroup_StartAccount(t *testing.T) {
	m := newManager(t)
	g := newGroup(t, m, roomy)
	cmd, out := startMember(t, g, "spin", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := g.StartAccount(); err != nil {
		t.Fatal(err)
	}
	if micros, err := g.CPUMicros(); err != nil || micros > 50_000 {
		t.Errorf("%d µs are counted of before (%v)", micros, err)
	}
}
