package native_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// TestImages_PreloadNumpy: a large module of an image works within 256 MiB, and is
// there already for the programs that name it.
func TestImages_PreloadNumpy(t *testing.T) {
	images := enginetest.NumpyImage(t)
	r, err := images.Inspect("base")
	if err != nil || !slices.Equal(r.Preload, []string{"numpy"}) {
		t.Fatalf("%+v, %v", r, err)
	}
	e := newEngineLike(t, native.Config{Images: images, Ready: 1, PreloadSets: []string{"numpy"}})
	limits := sandbox.DefaultLimits()
	limits.MemoryBytes = enginetest.NumpyBytes
	text := "import sys\nprint('numpy' in sys.modules)\n" + enginetest.UsesNumpy
	run := func() string {
		sb, err := e.Create(t.Context(), isolation.Plan{
			ID: "numpy", Image: r.Digest, Limits: limits, Mentions: func(module string) bool { return module == "numpy" },
		})
		if err != nil {
			t.Fatal(err)
		}
		end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits)).Run()
		if err = errors.Join(err, sb.Destroy(t.Context())); err != nil || end.Outcome.ExitCode != 0 {
			t.Fatalf("%+v, %v\n%s", end.Outcome, err, end.Stderr.Text())
		}
		return end.Stdout.Text()
	}
	if got := run(); got != "False\n50.0\n" {
		t.Errorf("imported by the program: %q", got)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if run() == "True\n50.0\n" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it was never preloaded")
		}
	}
}
