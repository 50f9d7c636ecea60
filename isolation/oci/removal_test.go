package oci_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
)

// runtimeThat is a runtime that makes containers as they should be, and does
// something else when it is told to delete one.
func runtimeThat(t *testing.T, name, onDelete string) string {
	t.Helper()
	return fakeRuntime(t, fmt.Sprintf("case \"$*\" in *\" delete \"*) %s ;; *) exec %s \"$@\" ;; esac\n", onDelete, testenv.Binary(t, name)))
}

// TestEngine_RemovesWhatItsRuntimeDoesNot: a container is gone even where its
// runtime refuses to delete it.
func TestEngine_RemovesWhatItsRuntimeDoesNot(t *testing.T) {
	eachRuntime(t, func(t *testing.T, name string) {
		e, dir := engineIn(t, name, oci.Config{Program: runtimeThat(t, name, "exit 1")})
		end, err := runOnce(t.Context(), e, sandbox.DefaultLimits(), "print('well')")
		if err != nil || end.Stdout.Text() != "well\n" {
			t.Errorf("%q, %v", end.Stdout.Text(), err)
		}
		if left := leftovers(t, name, dir); len(left) > 0 {
			t.Errorf("left: %s", strings.Join(left, "\n"))
		}
	})
}

// TestEngine_RemovesInTimeWhatItsRuntimeHangsOn: with the patience of those who
// wait for the removal, which is less than what a runtime is given.
func TestEngine_RemovesInTimeWhatItsRuntimeHangsOn(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "hang") // after the probe, which has more patience
	hang := fmt.Sprintf("[ ! -e %s ] || sleep 300", mark)
	e, dir := engineIn(t, oci.Runc, oci.Config{Program: runtimeThat(t, oci.Runc, hang)})
	sb, err := e.Create(t.Context(), plan(sandbox.DefaultLimits()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := sb.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, oci.Runc, dir); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, "\n"))
	}
}
