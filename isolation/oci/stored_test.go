package oci_test

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestStoredImage_RunsPrograms(t *testing.T) {
	images := enginetest.StoredImage(t)
	eachRuntime(t, func(t *testing.T, name string) {
		testenv.Binary(t, name)
		e := newEngineLike(t, oci.Config{Runtime: name, Images: images, Ready: 1})
		run := func(image, text string) {
			t.Helper()
			p := plan(sandbox.DefaultLimits())
			p.Image = image
			end, err := runPlan(t.Context(), e, p, text)
			if err != nil || !end.Outcome.Exited || end.Outcome.ExitCode != 0 || !strings.Contains(end.Stdout.Text(), "inside") {
				t.Errorf("image %q: %+v, %v\n%s%s", image, end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
			}
		}
		run("base", enginetest.InStoredImage)
		run("", "import os\nassert not os.path.exists('/bin/dash')\nprint('inside')") // the host's has none
		run("base", enginetest.InStoredImage)
		if _, err := e.Create(t.Context(), isolation.Plan{ID: "other", Image: "other", Limits: sandbox.DefaultLimits()}); sandbox.KindOf(err) != sandbox.KindNotFound {
			t.Errorf("an image that is not there: %v", err)
		}
	})
	if err := images.Verify(t.Context(), "base"); err != nil {
		t.Errorf("the runs changed the image: %v", err)
	}
}

func TestStoredImage_ImportsNumpy(t *testing.T) {
	images := enginetest.NumpyImage(t)
	eachRuntime(t, func(t *testing.T, name string) {
		testenv.Binary(t, name)
		p := plan(sandbox.DefaultLimits())
		p.Image, p.Limits.MemoryBytes = "base", enginetest.NumpyBytes
		end, err := runPlan(t.Context(), newEngineLike(t, oci.Config{Runtime: name, Images: images}), p, enginetest.UsesNumpy)
		if err != nil || end.Stdout.Text() != "50.0\n" {
			t.Errorf("%+v, %v\n%s%s", end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
		}
	})
}
