package oci_test

import (
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestStoredImage_RunsPrograms(t *testing.T) {
	images := enginetest.StoredImage(t)
	use, err := images.Acquire("base")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(use.Release)
	eachRuntime(t, func(t *testing.T, name string) {
		testenv.Binary(t, name)
		e := newEngineLike(t, oci.Config{Runtime: name, Rootfs: oci.RootfsOf(use.Image)})
		end, err := runOnce(t.Context(), e, sandbox.DefaultLimits(), enginetest.InStoredImage)
		if err != nil || !end.Outcome.Exited || end.Outcome.ExitCode != 0 || end.Stdout.Text() != "inside /workspace\n" {
			t.Errorf("%+v, %v\n%s%s", end.Outcome, err, end.Stdout.Text(), end.Stderr.Text())
		}
	})
	if err := images.Verify(t.Context(), "base"); err != nil {
		t.Errorf("the runs changed the image: %v", err)
	}
}
