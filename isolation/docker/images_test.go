package docker_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
)

// copyOfHost is an image with the machine's own Python: what the host image of other
// engines binds, an Engine gets as a copy. Its root is as bare as theirs.
func copyOfHost(t testing.TB) *images.Image {
	t.Helper()
	image, err := images.Host(t.Context(), images.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	image.Name = "copy"
	return image
}

func TestStoredImage_RunsPrograms(t *testing.T) {
	store := enginetest.StoredImage(t)
	use, err := store.Acquire("base")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(use.Release)
	e := newEngine(t, docker.Config{Images: store})
	for _, digest := range []string{use.Image.Digest, ""} {
		p := plan(sandbox.DefaultLimits())
		p.Image = digest
		text := enginetest.InStoredImage
		if digest == "" {
			text = "print('inside', __import__('os').getcwd())"
		}
		end, err := runOnce(t.Context(), e, p, text)
		if err != nil || !end.Outcome.Exited || end.Outcome.ExitCode != 0 || end.Stdout.Text() != "inside /workspace\n" {
			t.Errorf("%q: %+v, %v\n%s%s", digest, end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
		}
	}
	p := plan(sandbox.DefaultLimits())
	p.Image = "sha256:0000"
	if _, err := e.Create(t.Context(), p); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("an unknown image: %v", err)
	}
}

// TestNamedImage_IsTakenByItsID: what the Engine has serves without a description,
// under nothing of its own making, and its name may move.
func TestNamedImage_IsTakenByItsID(t *testing.T) {
	on := theEngine(t)
	on.Import(t, "named", "ENV SECRET=of-the-image", `ENTRYPOINT ["/bin/false"]`, `HEALTHCHECK --interval=1s CMD touch /workspace/healthy`)
	e := newEngine(t, docker.Config{DockerImage: "named"})
	s, err := e.Probe(t.Context())
	if err != nil || !s.Usable || !strings.Contains(s.Image, "named sha256:") {
		t.Fatalf("%v, %s, image %q", err, s.Reason, s.Image)
	}
	if r := s.Layer(sandbox.LayerCleanEnv); r.State != sandbox.LayerHeld {
		t.Errorf("%+v", r)
	}
	on.Import(t, "named", "VOLUME /data") // another one has the name now
	const text = "import os, sys, time; time.sleep(2.5); print(sys.executable, os.listdir('/workspace'), os.path.exists('/data'))"
	end, err := runOnce(t.Context(), e, plan(sandbox.DefaultLimits()), text)
	if err != nil || end.Stdout.Text() != "/usr/bin/python3 [] False\n" {
		t.Errorf("%q, %v", end.Stdout.Text(), err)
	}
	s, err = newEngine(t, docker.Config{DockerImage: "named"}).Probe(t.Context())
	if err != nil || s.Usable || !strings.Contains(s.Reason, "declares volumes") {
		t.Errorf("%v, usable %v, %s", err, s.Usable, s.Reason)
	}
}

// TestReap_RemovesImagesThatNobodyKnows, of the daemon's own.
func TestReap_RemovesImagesThatNobodyKnows(t *testing.T) {
	on := theEngine(t)
	const mine = "000000000000cafe"
	label := "LABEL io.sandboxd.image=sha256:0000 io.sandboxd.owner="
	on.Import(t, "forgotten", label+mine)
	on.Import(t, "anothers", label+"000000000000beef")
	if err := newEngine(t, docker.Config{Owner: mine}).Reap(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]int{"forgotten": http.StatusNotFound, "anothers": http.StatusOK} {
		if status, err := on.Ask(t.Context(), http.MethodGet, "/images/"+name+"/json", nil, nil, nil); err != nil || status != want {
			t.Errorf("%s: status %d, %v", name, status, err)
		}
	}
}

// TestStoredImage_IsPutBack where somebody has removed it: the second try of a run
// finds it.
func TestStoredImage_IsPutBack(t *testing.T) {
	on := enginetest.StartDockerEngine(t, false)
	e := newEngine(t, docker.Config{Host: "unix://" + on.Socket})
	if got := keep(t.Context(), e, "pass"); got.err != nil {
		t.Fatal(got.err)
	}
	status, err := on.Ask(t.Context(), http.MethodDelete, "/images/"+imageOf(t, on), url.Values{"force": {"1"}}, nil, nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
	if got := keep(t.Context(), e, "pass"); got.err != nil || got.verdict != sandbox.Passed {
		t.Errorf("%s, %v", got.verdict, got.err)
	}
}

func TestStoredImage_ImportsNumpy(t *testing.T) {
	store := enginetest.NumpyImage(t)
	use, err := store.Acquire("base")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(use.Release)
	for _, runtime := range []string{"", "runsc"} {
		p := plan(sandbox.DefaultLimits())
		p.Image, p.Limits.MemoryBytes = use.Image.Digest, enginetest.NumpyBytes
		end, err := runOnce(t.Context(), newEngine(t, docker.Config{Images: store, Runtime: runtime}), p, enginetest.UsesNumpy)
		if err != nil || end.Stdout.Text() != "50.0\n" {
			t.Errorf("runtime %q: %+v, %v\n%s%s", runtime, end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
		}
	}
}
