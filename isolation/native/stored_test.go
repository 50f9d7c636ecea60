package native_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
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

// TestImages_RunBesideEachOther: each run is in the image that it names, which
// stays as long as anything of it does.
func TestImages_RunBesideEachOther(t *testing.T) {
	images := enginetest.StoredImage(t)
	e := newEngineLike(t, native.Config{Images: images, Ready: 2})
	e.SetEviction(time.Second, 10*time.Millisecond)
	where := func(image string) (string, error) {
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "where", Image: image, Limits: sandbox.DefaultLimits()})
		if err != nil {
			return "", err
		}
		text := "import os\nprint(os.path.exists('/bin/dash'))\n" // which the host's has not
		end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, sandbox.DefaultLimits())).Run()
		return end.Stdout.Text(), errors.Join(err, sb.Destroy(t.Context()))
	}
	var runs sync.WaitGroup
	for range 4 {
		for image, want := range map[string]string{"base": "True\n", "host": "False\n", "": "False\n"} {
			runs.Go(func() {
				if got, err := where(image); err != nil || got != want {
					t.Errorf("image %q: it has a shell: %q, %v", image, got, err)
				}
			})
		}
	}
	runs.Wait()
	if _, err := where("other"); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := images.Remove("base"); sandbox.KindOf(err) != sandbox.KindConflict {
		t.Errorf("the image was removed from under its zygote: %v", err)
	}
	awaits(t, "the image is let go", func() bool {
		r, err := images.Inspect("base")
		return err == nil && r.InUse == 0
	})
	if got, err := where("base"); err != nil || got != "True\n" {
		t.Errorf("after the eviction: %q, %v", got, err)
	}
}
