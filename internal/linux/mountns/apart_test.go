//go:build linux

package mountns_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

func hostMounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestApart_LeavesTheHostAlone(t *testing.T) {
	testenv.Root(t)
	before, dir, source := hostMounts(t), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("bound"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := mountns.NewApart()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	root := mountns.Root{
		Dirs:  []string{"/tmp"},
		Binds: []mountns.Bind{{Source: source, Target: "/bound"}},
		Files: []mountns.File{{Path: "/etc/made", Mode: 0o644, Data: []byte("made")}},
	}
	if err := a.Build(dir, root); err != nil {
		t.Fatal(err)
	}
	inside := a.Do(func() error {
		for name, want := range map[string]string{"bound/file": "bound", "etc/made": "made"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				return errors.Join(err, errors.New(name+" is "+string(got)))
			}
		}
		for _, name := range []string{"new", "bound/new", "tmp/new"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err == nil {
				return errors.New(name + " could be written")
			}
		}
		return nil
	})
	if inside != nil {
		t.Error(inside)
	}
	if _, err := os.Stat(filepath.Join(dir, "etc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host sees the root: %v", err)
	}
	if err := a.Unmount(dir); err != nil {
		t.Error(err)
	}
	if after := hostMounts(t); after != before {
		t.Errorf("the host's mounts were\n%s\nand are\n%s", before, after)
	}
}

func TestApart_RefusesWhenClosed(t *testing.T) {
	testenv.Root(t)
	a, err := mountns.NewApart()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Close()
	if err := a.Do(func() error { return nil }); err == nil {
		t.Error("something was done in a namespace that is closed")
	}
}
