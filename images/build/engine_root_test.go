package build_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/sandboxd/sandboxd/images/build"
	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/images/store"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
)

// engine is an Engine of the test's own that has a base.
type engine struct {
	source.Engine
	api *client.Client
}

func newEngine(t *testing.T) engine {
	t.Helper()
	on := enginetest.StartDockerEngine(t, false)
	e := engine{Engine: source.Engine{Host: "unix://" + on.Socket}}
	var err error
	if e.api, err = e.Connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.api.Close() })
	f, err := os.Open(enginetest.BaseArchive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	e.put(t, "local/base:1", f)
	return e
}

// put makes an image of the archive of a root file system.
func (e engine) put(t *testing.T, name string, archive io.Reader, changes ...string) {
	t.Helper()
	said, err := e.api.ImageImport(t.Context(), image.ImportSource{Source: archive, SourceName: "-"}, name, image.ImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(said)
	if err = errors.Join(err, said.Close()); err != nil || bytes.Contains(text, []byte("error")) {
		t.Fatalf("%s, %v", text, err)
	}
}

// holds lists all that the Engine has: containers, layers without a name, names.
func (e engine) holds(t *testing.T) []string {
	t.Helper()
	var all []string
	containers, err := e.api.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		all = append(all, "container "+c.State+" "+c.Command)
	}
	images, err := e.api.ImageList(t.Context(), image.ListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		all = append(all, strings.Join(append([]string{"image"}, i.RepoTags...), " "))
	}
	slices.Sort(all)
	return all
}

func openStore(t *testing.T, e source.Engine) (*store.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(store.Config{
		Dir: dir, Arch: runtime.GOARCH, Log: slog.New(slog.DiscardHandler), Limits: unpack.DefaultLimits(), Engine: e,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

// TestEngine_ExportIsTheSameImage: by a name, by an ID and as a file.
func TestEngine_ExportIsTheSameImage(t *testing.T) {
	e := newEngine(t)
	s, _ := openStore(t, e.Engine)
	want, err := s.Import(t.Context(), store.Request{Path: enginetest.BaseArchive(t)})
	if err != nil {
		t.Fatal(err)
	}
	found, err := e.Find(t.Context(), e.api, "local/base:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"local/base:1", found.ID} {
		var fetched store.Progress
		got, err := s.Import(t.Context(), store.Request{Kind: source.DockerEngine, Reference: name, Progress: func(p store.Progress) {
			if p.Phase == store.PhaseFetch {
				fetched = p
			}
		}})
		if err != nil || got.Digest != want.Digest {
			t.Errorf("%s: got %s, want %s, %v", name, got.Digest, want.Digest, err)
		}
		if fetched.Total == 0 || fetched.Done < fetched.Total/2 {
			t.Errorf("%s: told of %+v", name, fetched)
		}
	}
	_, err = s.Import(t.Context(), store.Request{Kind: source.DockerEngine, Reference: "local/none"})
	if sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("an image that is not there: %v", err)
	}
}

func TestEngine_CanceledExportLeavesTheStoreWhole(t *testing.T) {
	e := newEngine(t)
	s, dir := openStore(t, e.Engine)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Import(ctx, store.Request{Kind: source.DockerEngine, Reference: "local/base:1", Progress: func(p store.Progress) {
		if p.Done > 0 {
			cancel()
		}
	}})
	if sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Error(err)
	}
	for _, sub := range []string{"tmp", "trees"} {
		if left, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", sub, left, err)
		}
	}
}

func TestPython_BuildsAnImage(t *testing.T) {
	e := newEngine(t)
	e.put(t, "local/setuid:1", withFile(t, enginetest.BaseArchive(t), "./usr/bin/odd", 0o6755, nil))
	before := e.holds(t)
	var steps []int
	var text strings.Builder
	id, err := build.Python(t.Context(), e.Engine, build.Request{Base: "local/setuid:1"}, func(p build.Progress) {
		if !slices.Contains(steps, p.Step) {
			steps = append(steps, p.Step)
		}
		text.WriteString(p.Text + "\n")
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	if !slices.IsSorted(steps) || len(steps) < 10 || !strings.Contains(text.String(), "Python 3.11") {
		t.Errorf("told of steps %v:\n%s", steps, &text)
	}
	built, err := e.api.ImageInspect(t.Context(), id)
	if err != nil || built.Config.User != "1000:1000" {
		t.Errorf("runs as %+v, %v", built.Config, err)
	}
	if mode := e.modeOf(t, id, "/usr/bin/odd"); mode != 0o755 {
		t.Errorf("a set-id program stayed one: %v", mode)
	}
	s, dir := openStore(t, e.Engine)
	r, err := s.Import(t.Context(), store.Request{Kind: source.DockerEngine, Reference: id, Name: "python"})
	if err != nil || !strings.HasPrefix(r.PythonVersion, "3.11") {
		t.Fatalf("%+v, %v", r, err)
	}
	checkTree(t, filepath.Join(dir, "trees", strings.TrimPrefix(r.Digest, "sha256:"), "tree"))
	if err := build.Remove(t.Context(), e.Engine, id); err != nil {
		t.Error(err)
	}
	if err := build.Remove(t.Context(), e.Engine, id); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if after := e.holds(t); !slices.Equal(after, before) {
		t.Errorf("the Engine holds %v", after)
	}
}

// modeOf looks into an image of the Engine: the store would drop set-id bits anyway.
func (e engine) modeOf(t *testing.T, imageID, path string) os.FileMode {
	t.Helper()
	c, err := e.api.ContainerCreate(t.Context(), &container.Config{Image: imageID}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	found, err := e.api.ContainerStatPath(t.Context(), c.ID, path)
	if err = errors.Join(err, e.api.ContainerRemove(t.Context(), c.ID, container.RemoveOptions{})); err != nil {
		t.Fatal(err)
	}
	return found.Mode
}

// checkTree looks for what an image should not have.
func checkTree(t *testing.T, tree string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(tree, "usr/lib/python3.11/__pycache__/argparse.cpython-311.pyc")); err != nil {
		t.Errorf("no byte code: %v", err)
	}
	for _, pattern := range []string{"var/lib/apt/lists/*", "var/cache/apt/*", "root/.cache", "usr/bin/gcc*", "usr/bin/make"} {
		if found, err := filepath.Glob(filepath.Join(tree, pattern)); err != nil || len(found) > 0 {
			t.Errorf("left inside: %v, %v", found, err)
		}
	}
}

// withFile adds an executable to the archive of a base.
func withFile(t *testing.T, archive, name string, mode int64, content []byte) io.Reader {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	var more bytes.Buffer
	w := tar.NewWriter(&more)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The archive ends in blocks of zeros, which the one that is added has, too.
	const block = 512
	end := (len(bytes.TrimRight(data, "\x00")) + block - 1) / block * block
	return io.MultiReader(bytes.NewReader(data[:end]), &more)
}

// wheel is a package of one module.
func wheel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"demo/__init__.py":            "answer = 42\n",
		"demo-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/RECORD":   "",
	} {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPython_InstallsWheels from a directory of the base, where pip is told to look
// instead of a network.
func TestPython_InstallsWheels(t *testing.T) {
	testenv.AllEngines(t)
	e := newEngine(t)
	e.put(t, "local/pip:1", withFile(t, enginetest.BaseArchive(t, "python3-pip"), "./wheels/demo-1.0-py3-none-any.whl", 0o644, wheel(t)),
		"ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels")
	id, err := build.Python(t.Context(), e.Engine, build.Request{Base: "local/pip:1", Requirements: []string{"demo>=1,<2"}, Network: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, dir := openStore(t, e.Engine)
	r, err := s.Import(t.Context(), store.Request{Kind: source.DockerEngine, Reference: id})
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, "trees", strings.TrimPrefix(r.Digest, "sha256:"), "tree")
	found, err := filepath.Glob(filepath.Join(tree, "usr/local/lib/python3*/dist-packages/demo/__pycache__/*.pyc"))
	if err != nil || len(found) != 1 {
		t.Errorf("installed %v, %v", found, err)
	}
	checkTree(t, tree)
	_, err = build.Python(t.Context(), e.Engine, build.Request{Base: "local/pip:1", Requirements: []string{"demo==7"}, Network: true}, nil)
	if sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), "demo==7") {
		t.Errorf("a version that is not there: %v", err)
	}
	t.Log(err)
}

func TestPython_FailureSaysWhatTheStepSaid(t *testing.T) {
	e := newEngine(t)
	e.put(t, "local/tools:1", withFile(t, enginetest.BaseArchive(t), "./usr/bin/make", 0o755, nil))
	before := e.holds(t)
	for title, c := range map[string]struct {
		request build.Request
		kind    sandbox.Kind
		want    string
	}{
		"build tools": {build.Request{Base: "local/tools:1"}, sandbox.KindInvalid, "the base has make: take a base"},
		"no pip":      {build.Request{Base: "local/base:1", Requirements: []string{"numpy==1.26.4"}, Network: true}, sandbox.KindInvalid, "the base has no pip"},
		"no base":     {build.Request{Base: "local/none:1"}, sandbox.KindNotFound, "does not have it"},
	} {
		id, err := build.Python(t.Context(), e.Engine, c.request, nil)
		if id != "" || err == nil || sandbox.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %q, %v", title, id, err)
		}
		t.Log(err)
	}
	if after := e.holds(t); !slices.Equal(after, before) {
		t.Errorf("the Engine holds %v", after)
	}
}

func TestPython_CancelLeavesNothing(t *testing.T) {
	e := newEngine(t)
	before := e.holds(t)
	for _, step := range []int{2, 3, 4, 6, 7} {
		ctx, cancel := context.WithCancelCause(t.Context())
		id, err := build.Python(ctx, e.Engine, build.Request{Base: "local/base:1"}, func(p build.Progress) {
			if p.Step == step {
				cancel(errors.New("enough"))
			}
		})
		cancel(nil)
		if id != "" || sandbox.KindOf(err) != sandbox.KindCanceled || !strings.Contains(err.Error(), "enough") {
			t.Errorf("step %d: got %q, %v", step, id, err)
		}
		t.Log(err)
		if after := e.holds(t); !slices.Equal(after, before) {
			t.Errorf("step %d: the Engine holds %v", step, after)
		}
	}
}
