package store

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestMain is also the process that is killed while it imports.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_IMPORT"); dir != "" {
		os.Exit(importForever(dir, os.Getenv("STORE_TEST_ARCHIVE")))
	}
	goleak.VerifyTestMain(m)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// program is the header of an executable, and a version's text.
func program(t testing.TB, machine elf.Machine, version string) string {
	t.Helper()
	var b bytes.Buffer
	err := binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + "\x00" + version + "\x00"
}

// tree is an archive's content by name; "->" begins a link's target, and "private "
// a name whose mode lets only its owner in.
type tree map[string]string

const private = "private "

// pythonTree is the least that is taken for an image with Python.
func pythonTree(t testing.TB) tree {
	return tree{
		"usr/bin/python3.11":                              program(t, machines[runtime.GOARCH], "3.11.9"),
		"usr/bin/python3":                                 "->python3.11",
		"usr/lib/python3.11/os.py":                        "",
		"usr/lib/python3.11/lib-dynload/_ctypes.x.so":     "",
		"usr/lib/python3/dist-packages/numpy/__init__.py": "",
		"bin":            "->usr/bin",
		"etc/passwd":     "root:x:0:0::/root:/bin/sh\n",
		"etc/shadow":     "root:secret\n",
		"tmp/rubbish":    "x",
		"opt/data":       "data",
		"usr/share/file": "file",
	}
}

func (m tree) with(change func(tree)) tree {
	out := maps.Clone(m)
	change(out)
	return out
}

func (m tree) tar(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(m[name])), ModTime: time.Unix(1_700_000_000, 0)}
		if bare, ok := strings.CutPrefix(name, private); ok {
			h.Name, h.Mode = bare, 0o700
			if strings.HasSuffix(bare, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		target, linked := strings.CutPrefix(m[name], "->")
		if linked {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if linked {
			continue
		}
		if _, err := io.WriteString(w, m[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func config(dir string) Config {
	return Config{
		Dir: dir, Arch: runtime.GOARCH, Log: slog.New(slog.DiscardHandler), Preload: []string{"numpy", "pandas"},
		Limits: unpack.Limits{Bytes: 64 << 20, Entries: 5000, PathBytes: 512, Depth: 32},
		Host:   &images.Image{Name: "host", Digest: "sha256:host", PythonVersion: "3.11.2", Interpreter: "/usr/bin/python3.11"},
	}
}

func newStore(t testing.TB) *Store { return openStore(t, config(filepath.Join(t.TempDir(), "images"))) }

func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Store) mustImport(t testing.TB, name string, m tree) Record {
	t.Helper()
	r, err := s.Import(t.Context(), Request{Name: name, Stream: bytes.NewReader(m.tar(t))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leftovers are what an idle store must not have.
func leftovers(t testing.TB, s *Store) []fs.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, tmpDir))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestImport_DescribesWhatItHas(t *testing.T) {
	s := newStore(t)
	var phases []Phase
	r, err := s.Import(t.Context(), Request{Name: "py", Origin: "a test", Stream: bytes.NewReader(pythonTree(t).tar(t)), Progress: func(p Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		Digest: r.Digest, Names: []string{"py"}, Origin: "a test", Arch: runtime.GOARCH,
		Created: r.Created, LastUsed: r.LastUsed, Bytes: r.Bytes, Entries: r.Entries,
		PythonVersion: "3.11.9", Interpreter: "/usr/bin/python3.11", Stdlib: "/usr/lib/python3.11",
		Ctypes:       "/usr/lib/python3.11/lib-dynload/_ctypes.x.so",
		SitePackages: []string{"/usr/lib/python3/dist-packages"}, Preload: []string{"numpy"},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if r.Bytes == 0 || r.Entries == 0 || r.Created.IsZero() || r.LastUsed.IsZero() {
		t.Errorf("%+v", r)
	}
	if want := []Phase{PhaseFetch, PhaseUnpack, PhaseCheck, PhaseSync}; !slices.Equal(phases, want) {
		t.Errorf("phases %v", phases)
	}
	if left := leftovers(t, s); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if err := s.Verify(t.Context(), "py"); err != nil {
		t.Error(err)
	}
}

func TestImport_DressesTheTree(t *testing.T) {
	s := newStore(t)
	s.mustImport(t, "py", pythonTree(t).with(func(m tree) {
		m["etc/hosts"], m["proc"], m["sys/x"], m["app.py"] = "->/etc/hostname", "->/tmp", "", "pass"
	}))
	use, err := s.Acquire("py")
	if err != nil {
		t.Fatal(err)
	}
	defer use.Release()
	img := use.Image
	root := filepath.Join(s.dir, treePath(img.Digest), treeName)
	for _, dir := range madeDirs {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil || len(entries) > 0 {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
	for _, f := range images.EtcFiles() {
		data, err := os.ReadFile(filepath.Join(root, f.Path))
		if err != nil || !bytes.Equal(data, f.Data) {
			t.Errorf("%s: %q, %v", f.Path, data, err)
		}
	}
	var targets []string
	for _, b := range img.Binds {
		targets = append(targets, b.Target)
		if b.Source != root+b.Target || b.Dir != (b.Target != "/app.py") {
			t.Errorf("bind %+v", b)
		}
	}
	if want := []string{"/app.py", "/etc", "/opt", "/usr"}; !slices.Equal(targets, want) || len(img.Files) > 0 {
		t.Errorf("binds %v, files %v", targets, img.Files)
	}
	if want := []images.Symlink{{Path: "/bin", Target: "usr/bin"}}; !slices.Equal(img.Symlinks, want) {
		t.Errorf("links %v", img.Symlinks)
	}
	if img.Name != "py" || img.Interpreter != "/usr/bin/python3.11" || img.Stdlib == "" || len(img.SitePackages) != 1 || !slices.Equal(img.Preload, []string{"numpy"}) {
		t.Errorf("%+v", img)
	}
}

func TestImport_RefusesImagesWithoutPython(t *testing.T) {
	s := newStore(t)
	whole := pythonTree(t)
	const python = "usr/bin/python3.11"
	for title, c := range map[string]struct {
		change func(tree)
		want   string
	}{
		"none":             {func(m tree) { delete(m, python) }, "no interpreter"},
		"old":              {func(m tree) { m["usr/bin/python3"] = "->python3.8"; m["usr/bin/python3.8"] = m[python] }, "older than 3.9"},
		"no program":       {func(m tree) { m[python] = "#!/bin/sh\n" }, "no program"},
		"other machine":    {func(m tree) { m[python] = program(t, elf.EM_PPC64, "3.11.9") }, "is for EM_PPC64"},
		"no ctypes":        {func(m tree) { delete(m, "usr/lib/python3.11/lib-dynload/_ctypes.x.so") }, "_ctypes"},
		"no library":       {func(m tree) { delete(m, "usr/lib/python3.11/os.py") }, "no standard library"},
		"link out":         {func(m tree) { m[python] = "->/usr/bin/python3.11" }, "no interpreter"},
		"link to host":     {func(m tree) { delete(m, python); m["usr/bin/python3"] = "->/../../../../usr/bin/python3.11" }, "no interpreter"},
		"etc is a link":    {func(m tree) { delete(m, "etc/passwd"); delete(m, "etc/shadow"); m["etc"] = "->/tmp" }, `"etc" above it is a symbolic link`},
		"odd path":         {func(m tree) { moveUsr(m, "x\x1b[m") }, "cannot be shown"},
		"hostile":          {func(m tree) { m["../x"] = "" }, `member "../x"`},
		"closed program":   {func(m tree) { m[private+python] = m[python]; delete(m, python) }, "may not be executed"},
		"closed directory": {func(m tree) { m[private+"usr/bin/"] = "" }, "may not be executed"},
		"closed library":   {func(m tree) { m[private+"usr/lib/"] = "" }, "may not be read"},
		"closed ctypes": {func(m tree) {
			const ctypes = "usr/lib/python3.11/lib-dynload/_ctypes.x.so"
			m[private+ctypes] = m[ctypes]
			delete(m, ctypes)
		}, "_ctypes"},
		"many at its root": {func(m tree) {
			for i := range maxAtRoot {
				m[fmt.Sprintf("d%d/f", i)] = ""
			}
		}, "entries at its root"},
		"nothing": {func(m tree) { clear(m) }, "no interpreter"},
	} {
		_, err := s.Import(t.Context(), Request{Stream: bytes.NewReader(whole.with(c.change).tar(t))})
		if err == nil || !strings.Contains(err.Error(), c.want) || sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: got %v, want %q", title, err, c.want)
		}
	}
	if left, all := leftovers(t, s), s.List(); len(left) > 0 || len(all) != 1 {
		t.Errorf("left %v, %v", left, all)
	}
}

// moveUsr leaves a link in its place.
func moveUsr(m tree, to string) {
	for name, content := range m {
		if rest, ok := strings.CutPrefix(name, "usr/"); ok {
			m[to+"/"+rest] = content
			delete(m, name)
		}
	}
	m["usr"] = "->" + to
}

func TestImport_FindsTheUsualPython(t *testing.T) {
	s := newStore(t)
	exe := program(t, machines[runtime.GOARCH], "3.12.1rc1")
	r := s.mustImport(t, "", tree{
		"usr/local/bin/python3.12":                             exe,
		"usr/local/bin/python3.9":                              exe,
		"usr/local/lib/python3.12/os.py":                       "",
		"usr/local/lib/python3.12/lib-dynload/_ctypes.x.so":    "",
		"usr/local/lib/python3.12/site-packages/pandas.py":     "",
		"usr/bin/python3.11":                                   exe,
		"usr/lib/python3/dist-packages/numpy/__init__.py":      "",
		"usr/local/lib/python3.12/site-packages/numpy/no-init": "",
	})
	want := []string{"/usr/local/lib/python3.12/site-packages"}
	if r.Interpreter != "/usr/local/bin/python3.12" || r.PythonVersion != "3.12.1rc1" || !slices.Equal(r.SitePackages, want) || !slices.Equal(r.Preload, []string{"pandas"}) {
		t.Errorf("%+v", r)
	}
}

func TestImport_SameContentIsOneImage(t *testing.T) {
	s := newStore(t)
	first := s.mustImport(t, "a", pythonTree(t))
	again := s.mustImport(t, "b", pythonTree(t))
	if first.Digest != again.Digest || len(s.List()) != 2 || !slices.Equal(again.Names, []string{"a", "b"}) {
		t.Errorf("%+v, %+v", first, again)
	}
	other := s.mustImport(t, "a", pythonTree(t).with(func(m tree) { m["opt/data"] = "other" }))
	if other.Digest == first.Digest || len(s.List()) != 3 {
		t.Error("other content, the same image")
	}
	if r, err := s.Inspect(first.Digest[:digestLength]); err != nil || !slices.Equal(r.Names, []string{"b"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// digestLength is enough of a digest to name it.
const digestLength = len(digestPrefix) + prefixDigits

func TestImport_RefusesRequests(t *testing.T) {
	s := newStore(t)
	stream := func() io.Reader { return bytes.NewReader(pythonTree(t).tar(t)) }
	for _, r := range []Request{
		{},
		{Path: "/x", Reference: "y"},
		{Name: "host", Stream: stream()},
		{Name: "Upper", Stream: stream()},
		{Name: "../x", Stream: stream()},
		{Name: "sha256:abc", Stream: stream()},
		{Name: "a b", Stream: stream()},
		{Kind: source.DockerArchive, Stream: stream()},
		{Stream: strings.NewReader("no archive at all")},
	} {
		if _, err := s.Import(t.Context(), r); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%+v: got %v", r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Import(ctx, Request{Stream: stream()}); sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Errorf("canceled: got %v", err)
	}
	if left := leftovers(t, s); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestImport_EndsWhereTheStoreIsFull(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Bytes = 4000
	s := openStore(t, cfg)
	s.mustImport(t, "a", pythonTree(t))
	big := pythonTree(t).with(func(m tree) { m["opt/data"] = strings.Repeat("x", 4000) })
	if _, err := s.Import(t.Context(), Request{Stream: bytes.NewReader(big.tar(t))}); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("got %v", err)
	}
	s.images["x"] = &Record{Bytes: 4000}
	_, err := s.Import(t.Context(), Request{Stream: bytes.NewReader(big.tar(t))})
	delete(s.images, "x")
	if sandbox.KindOf(err) != sandbox.KindExhausted {
		t.Errorf("got %v", err)
	}
}

func TestOpen_KeepsWhatWasStored(t *testing.T) {
	cfg := config(t.TempDir())
	s := openStore(t, cfg)
	s.mustImport(t, "a", pythonTree(t))
	s.mustImport(t, "b", pythonTree(t).with(func(m tree) { m["opt/data"] = "other" }))
	before := s.List()
	dir := s.dir
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, rubbish := range []string{"tmp/import-x/image/tree/usr", "trees/not-hex", "trees/" + strings.Repeat("ab", 32) + "/tree"} {
		if err := os.MkdirAll(filepath.Join(dir, rubbish), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s = openStore(t, cfg)
	if diff := cmp.Diff(before, s.List()); diff != "" {
		t.Error(diff)
	}
	trees, err := os.ReadDir(filepath.Join(dir, treesDir))
	if left := leftovers(t, s); len(left) > 0 || len(trees) != 2 || err != nil {
		t.Errorf("left %v, %v, %v", left, trees, err)
	}
}

func TestVerify_SeesChanges(t *testing.T) {
	s := newStore(t)
	r := s.mustImport(t, "a", pythonTree(t))
	if err := os.WriteFile(filepath.Join(s.dir, treePath(r.Digest), treeName, "opt/data"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("got %v", err)
	}
}

func TestOpen_RefusesGaps(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Dir = "relative" }, func(c *Config) { c.Arch = "" }, func(c *Config) { c.Log = nil },
		func(c *Config) { c.Limits.Depth = 0 },
	} {
		cfg := config(t.TempDir())
		change(&cfg)
		if _, err := Open(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, indexFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(config(dir)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
