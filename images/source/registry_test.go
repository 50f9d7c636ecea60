package source

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandboxd/sandboxd/sandbox"
)

func TestPull_ReadsARegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)))) //nolint:forbidigo // the library's own interface
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.ParseReference(host + "/some/image:1")
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client().Transport
	if err := remote.Write(ref, testImage(t, runtime.GOARCH), remote.WithTransport(client)); err != nil {
		t.Fatal(err)
	}
	r := Registry{Transport: client}
	img, err := r.Pull(t.Context(), ref.Name(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	names, err := contents(t, img)
	if strings.Join(names, " ") != "a b" || err != nil || !strings.Contains(img.Origin, "@sha256:") {
		t.Errorf("got %v of %s, %v", names, img.Origin, err)
	}
	other := options(t)
	other.Arch = "s390x"
	for title, c := range map[string]struct {
		reference string
		options   Options
		kind      sandbox.Kind
	}{
		"none":          {host + "/some/other:1", options(t), sandbox.KindNotFound},
		"malformed":     {"UPPER CASE", options(t), sandbox.KindInvalid},
		"other machine": {ref.Name(), other, sandbox.KindInvalid},
	} {
		if _, err := r.Pull(t.Context(), c.reference, c.options); sandbox.KindOf(err) != c.kind {
			t.Errorf("%s: got %v", title, err)
		}
	}
	server.Close()
	if _, err := r.Pull(t.Context(), ref.Name(), options(t)); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("no registry: got %v", err)
	}
}

// TestPull_RefusesHostileManifests before anything that they name is fetched.
func TestPull_RefusesHostileManifests(t *testing.T) {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	manifest := func(config int64, layer string) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"size":%d,"digest":%q},"layers":[%s]}`,
			types.OCIManifestSchema1, types.OCIConfigJSON, config, digest, layer)
	}
	layer := func(size int64, more string) string {
		return fmt.Sprintf(`{"mediaType":%q,"size":%d,"digest":%q%s}`, types.OCILayer, size, digest, more)
	}
	for title, c := range map[string]struct{ manifest, want string }{
		"large configuration":     {manifest(maxDocument+1, layer(1, "")), "configuration"},
		"endless configuration":   {manifest(-1, layer(1, "")), "configuration"},
		"large layer":             {manifest(1, layer(1<<40, "")), "together"},
		"layers large together":   {manifest(1, layer(600<<10, "")+","+layer(600<<10, "")), "together"},
		"endless layer":           {manifest(1, layer(-1, "")), "together"},
		"layer of somewhere else": {manifest(1, layer(1, `,"urls":["http://127.0.0.1:1/x"]`)), "elsewhere"},
		"no manifest":             {"{", ""},
	} {
		var blobs atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.Contains(r.URL.Path, "/manifests/"):
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = io.WriteString(w, c.manifest)
			case r.URL.Path != "/v2/":
				blobs.Add(1)
			}
		}))
		o := options(t)
		reference := strings.TrimPrefix(server.URL, "http://") + "/x:1"
		_, err := Registry{Transport: server.Client().Transport}.Pull(t.Context(), reference, o)
		server.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || blobs.Load() > 0 {
			t.Errorf("%s: got %v after %d blobs", title, err, blobs.Load())
		}
		if c.want != "" && sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: kind %s", title, sandbox.KindOf(err))
		}
	}
}
