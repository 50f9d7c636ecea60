package store

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// layered makes an image of two layers, the upper of which takes away what the
// lower has too much.
func layered(t *testing.T) v1.Image {
	t.Helper()
	lower := pythonTree(t).with(func(m tree) { m["opt/data"], m["opt/old/file"] = "old", "old" })
	upper := tree{"opt/data": "data", "opt/.wh.old": ""}
	img := empty.Image
	for _, m := range []tree{lower, upper} {
		content := m.tar(t)
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
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// TestImport_SameDigestFromEverySource: what counts is the tree, not how it came.
func TestImport_SameDigestFromEverySource(t *testing.T) {
	img := layered(t)
	ref, err := name.NewTag("example/image:1")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)))) //nolint:forbidigo // the library's own interface
	defer server.Close()
	remoteRef, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/example/image:1")
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client().Transport
	if err := remote.Write(remoteRef, img, remote.WithTransport(client)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	docker := filepath.Join(dir, "docker.tar")
	if err := tarball.WriteToFile(docker, ref, img); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	if err := w.AddFS(os.DirFS(string(path))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := config(t.TempDir())
	cfg.Registry.Transport = client
	s := openStore(t, cfg)
	want := s.mustImport(t, "tar", pythonTree(t)).Digest
	for title, r := range map[string]Request{
		"layout":         {Path: string(path)},
		"layout archive": {Stream: &packed},
		"docker archive": {Path: docker, Tag: ref.String()},
		"registry":       {Reference: remoteRef.Name()},
	} {
		total := int64(0)
		r.Progress = func(p Progress) {
			if p.Phase == PhaseUnpack {
				total = p.Total
			}
		}
		got, err := s.Import(t.Context(), r)
		if err != nil || got.Digest != want || total == 0 {
			t.Errorf("%s: got %s of %d bytes, want %s, %v", title, got.Digest, total, want, err)
		}
	}
}
