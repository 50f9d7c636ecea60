package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pack makes a tar of names and contents, in pairs.
func pack(t testing.TB, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// testImage has two layers.
func testImage(t testing.TB, arch string) v1.Image {
	t.Helper()
	img := empty.Image
	for _, content := range [][]byte{pack(t, "a", "one"), pack(t, "b", "two")} {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

func options(t testing.TB) Options {
	return Options{Arch: runtime.GOARCH, Scratch: t.TempDir(), Bytes: 1 << 20}
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// contents reads all layers of an image: the names in them, in order.
func contents(t testing.TB, img *Image) (names []string, err error) {
	t.Helper()
	defer func() { err = errors.Join(err, img.Close()) }()
	for _, l := range img.Layers {
		more, err := layerNames(t, l)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

func layerNames(t testing.TB, l Layer) (names []string, err error) {
	read := 0
	r, err := l.Open(t.Context(), func(n int) { read += n })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	if int64(read) != l.Bytes {
		t.Errorf("told of %d bytes of %d", read, l.Bytes)
	}
	return names, nil
}

// layoutDir writes an OCI layout of images for several architectures.
func layoutDir(t testing.TB, arches ...string) string {
	t.Helper()
	dir := t.TempDir()
	index := v1.ImageIndex(empty.Index)
	for _, arch := range arches {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: testImage(t, arch), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if len(arches) == 1 {
		err = path.AppendImage(testImage(t, arches[0]), layout.WithAnnotations(map[string]string{tagAnnotations[0]: "v1"}))
	} else {
		err = path.AppendIndex(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tarOf packs a directory.
func tarOf(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dockerArchive(t testing.TB, tag string) []byte {
	t.Helper()
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tarball.Write(ref, testImage(t, runtime.GOARCH), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOpen_ReadsEverySource(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = encoder.Close() }()
	plain := pack(t, "a", "one", "b", "two")
	for title, path := range map[string]string{
		"layout directory":        layoutDir(t, runtime.GOARCH),
		"layout of platforms":     layoutDir(t, "s390x", runtime.GOARCH),
		"layout archive":          write(t, "x.tar", tarOf(t, layoutDir(t, runtime.GOARCH))),
		"docker archive":          write(t, "x.tar", dockerArchive(t, "x:1")),
		"docker archive, gzip":    write(t, "x.tgz", gzipped(t, dockerArchive(t, "x:1"))),
		"root file system":        write(t, "x.tar", plain),
		"root file system, gzip":  write(t, "x", gzipped(t, plain)),
		"root file system, zstd":  write(t, "x", encoder.EncodeAll(plain, nil)),
		"root with manifest.json": write(t, "x.tar", pack(t, "a", "one", "b", "two", "manifest.json", "{}")),
	} {
		o := options(t)
		img, err := Open(path, o)
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		names, err := contents(t, img)
		if got := strings.Join(names[:min(2, len(names))], " "); err != nil || got != "a b" || img.Origin == "" {
			t.Errorf("%s: got %q of %q, %v", title, got, img.Origin, err)
		}
		if left, _ := os.ReadDir(o.Scratch); len(left) > 0 {
			t.Errorf("%s: left %v", title, left)
		}
	}
}

func TestOpen_ChoosesByTagAndKind(t *testing.T) {
	dir := layoutDir(t, runtime.GOARCH)
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(testImage(t, runtime.GOARCH), layout.WithAnnotations(map[string]string{tagAnnotations[1]: "v2"})); err != nil {
		t.Fatal(err)
	}
	docker := write(t, "x.tar", dockerArchive(t, "x:1"))
	for _, c := range []struct {
		path, tag string
		kind      Kind
		want      string
	}{
		{dir, "", "", "2 images"},
		{dir, "v2", "", ""},
		{dir, "v3", "", `the tag "v3"`},
		{dir, "v1", DockerArchive, "a directory"},
		{docker, "index.docker.io/library/x:1", "", "no image"},
		{docker, "x:1", "", ""},
		{docker, "", RootFS, ""},
		{docker, "", OCILayout, "index.json"},
		{docker, "", "squashfs", "no such kind"},
		{"/dev/null", "", "", "neither"},
		{"/nowhere", "", "", "no such file"},
	} {
		o := options(t)
		o.Tag, o.Kind = c.tag, c.kind
		img, err := Open(c.path, o)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v", c, err)
		}
		if err == nil {
			_ = img.Close()
		}
	}
}

// change rewrites one file of a layout.
func change(t testing.TB, dir, glob string, edit func([]byte) []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, glob))
	if err != nil || len(paths) == 0 {
		t.Fatal(glob, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, edit(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpen_RefusesHostileArchives(t *testing.T) {
	loop := func() []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{{Typeflag: tar.TypeSymlink, Name: "manifest.json", Linkname: "manifest.json"}} {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	edited := func(glob string, edit func([]byte) []byte) string {
		dir := layoutDir(t, runtime.GOARCH)
		change(t, dir, glob, edit)
		return dir
	}
	linked := layoutDir(t, runtime.GOARCH)
	change(t, linked, "index.json", func(b []byte) []byte { return b })
	if err := errors.Join(os.Rename(linked+"/index.json", linked+"/real"), os.Symlink("real", linked+"/index.json")); err != nil {
		t.Fatal(err)
	}
	const config = `{"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:` + "0000000000000000000000000000000000000000000000000000000000000000" + `"]}}`
	layer := string(pack(t, "a", ""))
	docker := func(list string) string {
		return write(t, "x.tar", pack(t, "manifest.json", list, "c", config, "l", layer, "x", "compressed by us"))
	}
	for title, c := range map[string]struct{ path, want string }{
		"link loop":          {write(t, "x.tar", loop()), ""},
		"link as index":      {linked, "no regular file"},
		"no index":           {t.TempDir(), "index.json"},
		"large index":        {edited("index.json", func([]byte) []byte { return make([]byte, maxDocument+1) }), "larger"},
		"other manifest":     {edited("index.json", func(b []byte) []byte { return bytes.Replace(b, []byte("sha256:"), []byte("sha512:"), 1) }), "index"},
		"edited blobs":       {edited("blobs/sha256/*", func(b []byte) []byte { return append(b, ' ') }), "another digest"},
		"no layers":          {docker(`[{"Config":"c","Layers":[]}]`), "no layers"},
		"too few digests":    {docker(`[{"Config":"c","Layers":["l","l"]}]`), "digests"},
		"layer that is gone": {docker(`[{"Config":"c","Layers":["../l"]}]`), "not in the image"},
		"other layer":        {docker(`[{"Config":"c","Layers":["l"]}]`), "another digest"},
		"config by path":     {docker(`[{"Config":"/etc/passwd","Layers":["l"]}]`), "not in the image"},
		"list of nothing":    {docker(`[]`), "no image"},
		"broken list":        {docker(`[{]`), "manifest.json"},
		"many layers":        {docker(`[{"Config":"c","Layers":[` + strings.Repeat(`"l",`, maxLayers) + `"l"]}]`), "more than"},
		"bomb":               {write(t, "x.tgz", gzipped(t, make([]byte, 2<<20))), "larger than"},
		"xz":                 {write(t, "x.xz", []byte("\xfd7zXZ\x00rest")), "xz"},
		"cut gzip":           {write(t, "x.tgz", gzipped(t, pack(t, "a", "b"))[:30]), "unexpected EOF"},
		"other machine":      {layoutDir(t, "s390x"), "linux/s390x"},
		"other platforms":    {layoutDir(t, "s390x", "ppc64le"), "no image for"},
	} {
		img, err := Open(c.path, options(t))
		if err == nil {
			_, err = contents(t, img)
		}
		if title == "link loop" {
			continue // it ends, as a root file system or not at all
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", title, err, c.want)
		}
		if sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: kind %s", title, sandbox.KindOf(err))
		}
	}
}

// TestOpen_ShowsNothingThatTerminalsObey: origins and errors end up on terminals.
func TestOpen_ShowsNothingThatTerminalsObey(t *testing.T) {
	odd := "\x1b[2J" + strings.Repeat("x", 5000)
	tags, err := json.Marshal([]string{odd})
	if err != nil {
		t.Fatal(err)
	}
	archive := tarOf(t, layoutDir(t, runtime.GOARCH)) // only to be no root file system
	config := `{"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:` + strings.Repeat("0", 64) + `"]}}`
	for _, path := range []string{
		write(t, "x.tar", pack(t, "manifest.json", `[{"Config":"c","RepoTags":`+string(tags)+`,"Layers":["l"]}]`, "c", config, "l", string(archive))),
		write(t, "x.tar", pack(t, "manifest.json", `[{"Config":`+string(tags[1:len(tags)-1])+`,"Layers":["l"]}]`)),
		write(t, "x.tar", pack(t, "manifest.json", `[{"Config":"c","Layers":["l"]}]`, "c", strings.Replace(config, `"linux"`, string(tags[1:len(tags)-1]), 1))),
	} {
		text := ""
		if img, err := Open(path, options(t)); err != nil {
			text = err.Error()
		} else {
			text = img.Origin
			_ = img.Close()
		}
		if strings.Contains(text, "\x1b") || len(text) > 1000 || !strings.Contains(text, "[2J") {
			t.Errorf("shows %d bytes: %.100q", len(text), text)
		}
	}
}

// FuzzOpen reads broken archives: nothing but an error may come of them.
func FuzzOpen(f *testing.F) {
	f.Add(dockerArchive(f, "x:1"))
	f.Add(tarOf(f, layoutDir(f, runtime.GOARCH)))
	f.Add(gzipped(f, pack(f, "a", "b")))
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := Open(write(t, "x", data), options(t))
		if err != nil {
			return
		}
		for _, l := range img.Layers {
			if r, err := l.Open(t.Context(), nil); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
				_ = r.Close()
			}
		}
		_ = img.Close()
	})
}

// TestIndexTar_HoldsNoHeaders: a header may be as large as the tar reader allows,
// and an archive may have many.
func TestIndexTar_HoldsNoHeaders(t *testing.T) {
	const members, most = 16, 4 << 20
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	padding := map[string]string{"TEST.padding": strings.Repeat("x", 900<<10)}
	for i := range members {
		h := tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("é%d", i), PAXRecords: padding, Format: tar.FormatPAX}
		if i%2 == 0 {
			h.Typeflag, h.Linkname = tar.TypeLink, h.Name
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	long := tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("d/", maxName) + "f", Format: tar.FormatPAX}
	if err := errors.Join(w.WriteHeader(&long), w.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(write(t, "x.tar", b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	before := heap()
	blobs, err := indexTar(f)
	if err != nil || len(blobs.members) != members {
		t.Fatalf("%d members, %v", len(blobs.members), err)
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d members hold %d bytes", members, grown)
	}
	runtime.KeepAlive(blobs)
	runtime.KeepAlive(&b)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}
