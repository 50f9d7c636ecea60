package enginetest

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/images/store"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

// StoredImage imports a small Debian with Python, by the name of "base", into a
// store that sandboxes can reach.
func StoredImage(t testing.TB) *store.Store {
	t.Helper()
	return storeOf(t, BaseArchive(t), nil)
}

// PreloadingImage is StoredImage with more of Debian's packages, in which the
// modules are looked for.
func PreloadingImage(t testing.TB, packages, modules []string) *store.Store {
	t.Helper()
	return storeOf(t, BaseArchive(t, packages...), modules)
}

// BaseArchive is a small Debian with Python, and more of Debian's packages, made
// once and kept for a week.
func BaseArchive(t testing.TB, packages ...string) string {
	t.Helper()
	testenv.Root(t)
	testenv.Binary(t, "mmdebstrap")
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(top, "build", strings.Join(append([]string{"base-bookworm"}, packages...), "-")+".tar")
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) < 7*24*time.Hour {
		return path
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(top, ".ci", "base"), append([]string{path}, packages...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// storeOf imports an archive into a store that sandboxes can reach.
func storeOf(t testing.TB, archive string, preload []string) *store.Store {
	t.Helper()
	dir := t.TempDir()
	for d := dir; filepath.Base(d) != "tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil { //nolint:gosec // as the daemon's state directory
			t.Fatal(err)
		}
	}
	s, err := store.Open(store.Config{
		Dir: filepath.Join(dir, "images"), Arch: runtime.GOARCH, Log: slog.New(slog.DiscardHandler), Limits: unpack.DefaultLimits(), Preload: preload,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := s.Import(t.Context(), store.Request{Name: "base", Path: archive})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	return s
}

// InStoredImage is a program that passes only inside StoredImage's base: it has what the host image leaves
// out, and nothing can be written.
const InStoredImage = `
import ctypes, os, sys
assert os.path.exists("/usr/share/doc/base-files") and os.path.exists("/bin/dash"), os.listdir("/")
assert open("/etc/passwd").read().startswith("root:x:0:0::/nonexistent")
assert sys.executable == "/usr/bin/python3.11", sys.executable
assert sorted(os.listdir("/tmp")) == [], os.listdir("/tmp")
try:
    os.listdir("/var/lib/apt/lists/partial")  # which is another user's in the archive
except PermissionError:
    pass
else:
    raise AssertionError("a private directory is open")
for path in ("/usr/bin/python3", "/etc/passwd", "/etc/new", "/new", "/usr/new"):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError as e:
        assert e.errno in (13, 26, 30), (path, e)
    else:
        raise AssertionError(path)
import json, sqlite3, ssl, decimal
print("inside", os.getcwd())
`

// UsesNumpy is a program that passes where numpy works, for sandboxes that are given
// NumpyBytes of memory.
const (
	UsesNumpy  = "import numpy\nprint(numpy.linalg.solve(numpy.eye(100) * 2, numpy.ones(100)).sum())\n"
	NumpyBytes = 256 << 20
)

// NumpyImage is a store with an image, by the name base, that has Debian's numpy.
func NumpyImage(t testing.TB) *store.Store {
	t.Helper()
	testenv.AllEngines(t) // it takes more than a minute to make
	return PreloadingImage(t, []string{"python3-numpy"}, []string{"numpy"})
}
