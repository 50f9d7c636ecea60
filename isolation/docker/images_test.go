package docker_test

import (
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
