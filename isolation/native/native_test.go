package native_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/native"
)

// TestMain also is the engine's container: it re-executes its own binary.
func TestMain(m *testing.M) {
	if os.Args[0] == native.ContainerName {
		fmt.Fprintln(os.Stderr, native.EnterContainer())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// idsPerTest is more than the ids of one test engine.
const idsPerTest = 512

// uidBase is this test process's own, so that what other tests run at the same
// time is not taken for its leftovers.
func uidBase() uint32 { return 1_000_000_000 + uint32(os.Getpid()%4_000_000)*idsPerTest }

func newEngine(t *testing.T) *native.Engine { return newEngineWithPool(t, 0) }

func newEngineWithPool(t testing.TB, ready int) *native.Engine {
	t.Helper()
	return newEngineLike(t, native.Config{Ready: ready})
}

// newEngineLike fills the gaps of a configuration.
func newEngineLike(t testing.TB, cfg native.Config) *native.Engine {
	t.Helper()
	testenv.Root(t)
	testenv.Cgroup(t)
	if cfg.Image == nil {
		image, err := images.Host(t.Context(), images.HostConfig{})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Image = image
	}
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: fmt.Sprintf("/sandboxd-test-%d", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cgroups, cfg.Arch, cfg.Log = groups, runtime.GOARCH, slog.New(slog.DiscardHandler)
	cfg.UIDBase, cfg.Sandboxes = uidBase(), 64
	e, err := native.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func TestEngine_Conforms(t *testing.T) {
	enginetest.Run(t, newEngine(t), enginetest.Options{Golden: "testdata/posture.golden"})
}

// TestEngine_ConformsFromItsPool: a sandbox that waited for its run holds as much
// as one made for it.
func TestEngine_ConformsFromItsPool(t *testing.T) {
	enginetest.Run(t, newEngineWithPool(t, 4), enginetest.Options{Golden: "testdata/posture.golden", Quick: testing.Short()})
}

// TestEngine_ConformsWithoutCode: so does one whose system calls are made from
// Python.
func TestEngine_ConformsWithoutCode(t *testing.T) {
	e := newEngineLike(t, native.SlowCalls(native.Config{Ready: 2}))
	enginetest.Run(t, e, enginetest.Options{Golden: "testdata/posture.golden", Quick: true})
}
