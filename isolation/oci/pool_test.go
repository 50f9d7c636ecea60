package oci_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestPool_ServesWithTheRunsOwnLimits: what was made ahead with default limits is
// handed out with those of the run.
func TestPool_ServesWithTheRunsOwnLimits(t *testing.T) {
	eachRuntime(t, func(t *testing.T, name string) {
		e, dir := engineIn(t, name, oci.Config{Ready: 2})
		if _, err := runOnce(t.Context(), e, sandbox.DefaultLimits(), "pass"); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); e.Stats().Ready < 2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d are ready", e.Stats().Ready)
			}
		}
		l := sandbox.DefaultLimits()
		l.OpenFiles, l.MemoryBytes = 32, 64<<20
		sb, err := e.Create(t.Context(), plan(l))
		if err != nil {
			t.Fatal(err)
		}
		if !sb.Making().Ready {
			t.Error("it was made for this run")
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		end, err := runOnce(t.Context(), e, l, "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))")
		if err != nil || !strings.Contains(end.Stdout.Text(), "(32, 32)") {
			t.Errorf("%q, %v", end.Stdout.Text(), err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if left := leftovers(t, name, dir); len(left) > 0 {
			t.Errorf("left: %s", strings.Join(left, "\n"))
		}
	})
}
