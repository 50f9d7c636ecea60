package native_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
)

// zygoteKiB is the memory of the usual zygote that is no file's.
func zygoteKiB(t *testing.T, e *native.Engine) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.ZygotePID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nRssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestZygote_KeepsFewProfiles: callers who never ask for the same limits twice
// cost the zygote no memory, which each later fork would pay for. What is dropped
// is made anew when it is asked for.
func TestZygote_KeepsFewProfiles(t *testing.T) {
	e := newEngine(t)
	make := func(inodes int64) {
		t.Helper()
		limits := sandbox.DefaultLimits()
		limits.WorkspaceInodes = inodes
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "profile", Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const kept, more = 40, 200
	for i := range int64(kept) {
		make(100 + i)
	}
	before := zygoteKiB(t, e)
	for i := range int64(more) {
		make(1000 + i)
	}
	make(100)
	if grown := zygoteKiB(t, e) - before; grown > 2048 { // some 30 MiB if all were kept
		t.Errorf("%d profiles more made the zygote %d KiB larger", more, grown)
	}
}
