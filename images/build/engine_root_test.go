package build_test

import (
	"archive/tar"
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
	"github.com/sandboxd/sandboxd/internal/dockertest"
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
	e := engine{Engine: source.Engine{Host: dockertest.Start(t)}}
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
func (e engine) put(t *testing.T, name string, archive io.Reader) {
	t.Helper()
	said, err := e.api.ImageImport(t.Context(), image.ImportSource{Source: archive, SourceName: "-"}, name, image.ImportOptions{})
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
	before := e.holds(t)
	var steps []int
	var text strings.Builder
	id, err := build.Python(t.Context(), e.Engine, build.Request{Base: "local/base:1"}, func(p build.Progress) {
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

// checkTree looks for what an image should not have. Set-id bits are the Engine's
// image's: the store drops them anyway, see its own tests.
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

// withFile adds an executable to the base.
func withFile(t *testing.T, name string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(enginetest.BaseArchive(t))
	if err != nil {
		t.Fatal(err)
	}
	var more bytes.Buffer
	w := tar.NewWriter(&more)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}), w.Close()); err != nil {
		t.Fatal(err)
	}
	return io.MultiReader(bytes.NewReader(bytes.TrimRight(data, "\x00")), padding(data), &more)
}

// padding is what the last block of an archive's content lacks after its zeros
// were cut off.
func padding(data []byte) io.Reader {
	const block = 512
	cut := len(bytes.TrimRight(data, "\x00"))
	return bytes.NewReader(make([]byte, (block-cut%block)%block))
}

func TestPython_FailureSaysWhatTheStepSaid(t *testing.T) {
	e := newEngine(t)
	e.put(t, "local/tools:1", withFile(t, "./usr/bin/make"))
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
