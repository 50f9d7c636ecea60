package native_test

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/native"
)

func TestStoredImage_RunsPrograms(t *testing.T) {
	images := enginetest.StoredImage(t)
	use, err := images.Acquire("base")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(use.Release)
	e := newEngineLike(t, native.Config{Image: use.Image, Ready: 2})
	support, err := e.Probe(t.Context())
	if err != nil || !support.Usable || !strings.Contains(support.Image, use.Image.Digest) {
		t.Fatalf("%+v, %v", support, err)
	}
	end, err := runOnce(t.Context(), e, "passes", enginetest.InStoredImage)
	if err != nil || !end.Outcome.Exited || end.Outcome.ExitCode != 0 || end.Stdout.Text() != "inside /workspace\n" {
		t.Errorf("%+v, %v\n%s%s", end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
	}
	end, err = runOnce(t.Context(), e, "fails", "import sys\nsys.exit('no ' + sys.version.split()[0])\n")
	if err != nil || !end.Outcome.Exited || end.Outcome.ExitCode != 1 || end.Stderr.Text() != "no "+use.Image.PythonVersion+"\n" {
		t.Errorf("%+v, %v\n%s%s", end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
	}
	if err := images.Verify(t.Context(), "base"); err != nil {
		t.Errorf("the runs changed the image: %v", err)
	}
}
