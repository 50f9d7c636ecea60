package oci_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/oci"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idsPerEngine is more than the ids of one test engine.
const idsPerEngine = 256

// uidBase is this test process's own, and another for each runtime.
func uidBase(name string) uint32 {
	base := 1_100_000_000 + uint32(os.Getpid()%1_000_000)*3*idsPerEngine //nolint:gosec // process ids are small
	for _, n := range oci.Names() {
		if n == name {
			break
		}
		base += idsPerEngine
	}
	return base
}

func cgroupParent(name string) string {
	return fmt.Sprintf("/sandboxd-oci-test-%d-%s", os.Getpid(), name)
}

// newEngineLike fills the gaps of a configuration.
func newEngineLike(t testing.TB, cfg oci.Config) *oci.Engine {
	t.Helper()
	testenv.Cgroup(t)
	if cfg.Image == nil {
		image, err := images.Host(t.Context(), images.HostConfig{})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Image = image
	}
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: cgroupParent(cfg.Runtime)})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Dir == "" {
		cfg.Dir = passableDir(t)
	}
	cfg.Cgroups, cfg.Arch, cfg.Log = groups, runtime.GOARCH, slog.New(slog.DiscardHandler)
	cfg.UIDBase, cfg.Sandboxes = uidBase(cfg.Runtime), 32
	e, err := oci.New(cfg)
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

// passableDir is one that container root, which is nobody on the host, can pass.
func passableDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; filepath.Base(d) != "tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil { //nolint:gosec // as said
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "engine")
}

func newEngine(t testing.TB, name string) *oci.Engine {
	t.Helper()
	testenv.Binary(t, name)
	return newEngineLike(t, oci.Config{Runtime: name})
}

// eachRuntime runs a test for every runtime.
func eachRuntime(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range oci.Names() {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// enginesEnv is "all" where every engine is to be tried by the hostile programs,
// and not one of each family: gVisor takes two seconds for each.
const enginesEnv = "SANDBOXD_ENGINES"

// unheld is what gVisor's own kernel, in the version of Debian 12, does not hold
// against programs of the suite. None of it reaches the host.
var unheld = map[string]map[string]string{oci.Runsc: {
	"script opens its streams": "a pipe of gVisor has the mode 0600 and no other, so /dev/stdout is its maker's",
	"becomes_somebody":         "setpriority raises a priority, which only gVisor itself obeys",
	"clone_flags":              "no hidepid: the supervisor can be seen",
	"host_files":               "gVisor has a /sys, of its own making",
	"namespace_descriptors":    "what gVisor's /proc tells of the supervisor is not kept from programs",
	"ptrace_supervisor":        "what gVisor's /proc tells of the supervisor is not kept from programs",
	"parked_code":              "gVisor's vDSO has no name in maps, so the program takes it for ours and overwrites its own",
}}

func TestEngine_Conforms(t *testing.T) {
	eachRuntime(t, func(t *testing.T, name string) {
		enginetest.Run(t, newEngine(t, name), enginetest.Options{
			Golden: "testdata/posture." + name + ".golden", Unheld: unheld[name],
			Quick: name == oci.Runsc && os.Getenv(enginesEnv) != "all",
		})
	})
}
