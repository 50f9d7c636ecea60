package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/sandboxd/sandboxd/internal/dockertest"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestEngine_AddressesAreChecked(t *testing.T) {
	for _, good := range []Engine{
		{}, {Host: "unix:///run/x.sock"}, {Host: "tcp://engine.example:2376", CA: "ca", Cert: "cert", Key: "key"},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []Engine{
		{Host: "unix://run/x.sock"},
		{Host: "unix://"},
		{Host: "/run/x.sock"},
		{Host: "ssh://x"},
		{Host: "http://x:1"},
		{Host: "npipe://x"},
		{Host: "tcp://x:2375"},
		{Host: "tcp://x", CA: "a", Cert: "b", Key: "c"},
		{Host: "tcp://x:1/y", CA: "a", Cert: "b", Key: "c"},
		{Host: "tcp://x:1", CA: "a", Cert: "b"},
		{CA: "a"},
		{Host: ":"},
	} {
		if err := bad.Validate(); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
		if _, err := bad.Save(t.Context(), "x"); err == nil {
			t.Errorf("%+v was connected to", bad)
		}
	}
	missing := Engine{Host: "tcp://localhost:1", CA: "/nowhere/ca", Cert: "/nowhere/cert", Key: "/nowhere/key"}
	if _, err := missing.Save(t.Context(), "x"); sandbox.KindOf(err) != sandbox.KindUnavailable || !strings.Contains(err.Error(), "tls_ca") {
		t.Errorf("certificates that are not there: %v", err)
	}
}

func TestEngine_AbsentIsUnavailable(t *testing.T) {
	_, err := Engine{Host: "unix://" + t.TempDir() + "/none.sock"}.Save(t.Context(), "x")
	if sandbox.KindOf(err) != sandbox.KindUnavailable || !strings.Contains(err.Error(), "systemctl start docker") ||
		!strings.Contains(err.Error(), "[images.docker]") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (Engine{Host: "unix:///none"}).Save(ctx, "x"); sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Errorf("canceled: %v", err)
	}
}

func TestEngine_RefusesWhatIsNoReference(t *testing.T) {
	host := dockertest.Fake(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s", r.URL)
		w.WriteHeader(http.StatusNotFound)
	}))
	for _, bad := range []string{"", "x/../../containers", "../x", "x?a=b", "x#y", "x y", "X", "/x", "x%2e", "\x1b[2J"} {
		if _, err := (Engine{Host: host}).Save(t.Context(), bad); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// engineWith has one image, of which it hands an archive out.
func engineWith(t *testing.T, id string, save func(io.Writer)) Engine {
	t.Helper()
	return Engine{Host: dockertest.Fake(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/images/x/json":
			_ = json.NewEncoder(w).Encode(map[string]any{"Id": id, "Size": 100})
		case "/images/broken/json":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "\x1b[2Jbroken")
		case "/images/get":
			if r.URL.Query().Get("names") != id {
				t.Errorf("saves %v", r.URL.Query())
			}
			save(w)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))}
}

// savedBy reads what an Engine hands out as an import does.
func savedBy(t *testing.T, e Engine) ([]string, error) {
	t.Helper()
	saved, err := e.Save(t.Context(), "x")
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(saved, 1<<20))
	if err = errors.Join(err, saved.Close()); err != nil {
		return nil, err
	}
	o := options(t)
	o.Kind, o.ID = DockerArchive, saved.ID
	img, err := Open(write(t, "x.tar", data), o)
	if err != nil {
		return nil, err
	}
	return contents(t, img)
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}

// containerdArchive is what Engines write that call images by their manifests.
func containerdArchive(t *testing.T) (id string, data []byte) {
	t.Helper()
	dir, img := t.TempDir(), testImage(t, runtime.GOARCH)
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.AppendImage(img), p.AppendImage(testImage(t, "s390x"))); err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	entry := dockerImage{Config: blobName(manifest.Config.Digest)}
	for _, l := range manifest.Layers {
		entry.Layers = append(entry.Layers, blobName(l.Digest))
	}
	list, err := json.Marshal([]dockerImage{entry})
	if err != nil {
		t.Fatal(err)
	}
	return digest.String(), append(withoutEnd(tarOf(t, dir)), pack(t, "manifest.json", string(list))...)
}

// withoutEnd is an archive to which another can be added.
func withoutEnd(archive []byte) []byte {
	const end = 1024 // two blocks of zeros
	return archive[:len(archive)-end]
}

// TestEngine_ArchiveIsTheImageThatWasFound, whichever way the Engine keeps images.
func TestEngine_ArchiveIsTheImageThatWasFound(t *testing.T) {
	config, err := testImage(t, runtime.GOARCH).RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	classic, id := dockerArchive(t, "x:1"), sum(config)
	manifestID, containerd := containerdArchive(t)
	other := "sha256:" + strings.Repeat("0", 64)
	all := func(data []byte) func(io.Writer) { return func(w io.Writer) { _, _ = w.Write(data) } }
	hangUp := func(data []byte) func(io.Writer) {
		return func(w io.Writer) {
			_, _ = w.Write(data)
			panic(http.ErrAbortHandler)
		}
	}
	for title, c := range map[string]struct {
		id   string
		save func(io.Writer)
		kind sandbox.Kind // "" for none
	}{
		"by configuration":         {id, all(classic), ""},
		"by manifest":              {manifestID, all(containerd), ""},
		"another image":            {other, all(classic), sandbox.KindInvalid},
		"another image, by layout": {other, all(containerd), sandbox.KindInvalid},
		"no ID":                    {"../../x", all(classic), sandbox.KindUnavailable},
		"cut short":                {id, all(classic[:len(classic)/2]), sandbox.KindInvalid},
		"hangs up":                 {id, hangUp(classic[:len(classic)/2]), sandbox.KindUnavailable},
		"nothing":                  {id, all(nil), sandbox.KindInvalid},
		"no archive":               {id, all([]byte(`{"message":"no space left"}`)), sandbox.KindInvalid},
		"a root file system":       {id, all(pack(t, "a", "one", "b", "two")), sandbox.KindInvalid},
	} {
		names, err := savedBy(t, engineWith(t, c.id, c.save))
		switch {
		case c.kind != "" && (err == nil || sandbox.KindOf(err) != c.kind):
			t.Errorf("%s: got %v", title, err)
		case c.kind == "" && (err != nil || path.Join(names...) != "a/b"):
			t.Errorf("%s: got %v, %v", title, names, err)
		}
	}
	e := engineWith(t, id, all(classic))
	if _, err := e.Save(t.Context(), "y"); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("an image that is not there: %v", err)
	}
	if _, err := e.Save(t.Context(), "broken"); sandbox.KindOf(err) != sandbox.KindUnavailable || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("an Engine that is broken: %q", err)
	}
}
