package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// shared is the Docker Engine of this test process, started by the first test that
// needs it.
var shared struct {
	once   sync.Once
	engine *enginetest.DockerEngine
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.engine != nil {
		if err := shared.engine.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop dockerd:", err)
			code = max(code, 1)
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// theEngine is the Docker Engine of this test process.
func theEngine(t testing.TB) *enginetest.DockerEngine {
	t.Helper()
	enginetest.NeedDockerd(t)
	shared.once.Do(func() {
		var dir string
		if dir, shared.err = os.MkdirTemp("", "sbx-docker-"); shared.err == nil { //nolint:usetesting // it outlives the test
			shared.engine, shared.err = enginetest.NewDockerEngine(dir, false)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.engine
}

// owner is this test process's own.
func owner() string { return fmt.Sprintf("%016x", os.Getpid()) }

// uidBase is this test process's own.
func uidBase() uint32 {
	return 1_900_000_000 + uint32(os.Getpid()%1_000_000)*128 //nolint:gosec // process ids are small
}

// newEngine fills the gaps of a configuration.
func newEngine(t testing.TB, cfg docker.Config) *docker.Engine {
	t.Helper()
	if cfg.Host == "" {
		cfg.Host = "unix://" + theEngine(t).Socket
	}
	if cfg.Image == nil && cfg.DockerImage == "" {
		cfg.Image = copyOfHost(t)
	}
	if cfg.Owner == "" {
		cfg.Owner = owner()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Sandboxes == 0 {
		cfg.Sandboxes = 64
	}
	cfg.Arch, cfg.UIDBase = runtime.GOARCH, uidBase()
	e, err := docker.New(cfg)
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

func plan(l sandbox.Limits) isolation.Plan {
	return isolation.Plan{ID: "test", Limits: l}
}

// runOnce runs a script in a sandbox of its own.
func runOnce(ctx context.Context, e *docker.Engine, p isolation.Plan, text string) (pyrunner.Ending, error) {
	sb, err := e.Create(ctx, p)
	if err != nil {
		return pyrunner.Ending{}, err
	}
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, p.Limits)).Run()
	return end, errors.Join(err, sb.Destroy(context.WithoutCancel(ctx)))
}

// unheld is what a container does not hold whose Engine does not map users: its
// supervisor has the program's id, and its /proc is a whole one. With users mapped
// the first of these is gone.
var unheld = map[string]string{
	"clone_flags":           "no hidepid: the supervisor can be seen",
	"host_secrets":          "no hidepid: the supervisor's arguments, which are the same for all, can be read",
	"inherited_descriptors": "pipes were made by a process of the same id, so either end of the program's own can be opened anew",
	"wakes_the_sleeper":     "the supervisor is of the same id: its priority and processors can be changed",
}

// unheldByRunsc is what gVisor's own kernel, in the version of Debian 12, does not
// hold against programs of the suite. None of it reaches the host.
var unheldByRunsc = map[string]string{
	"script opens its streams": "a pipe of gVisor has the mode 0600 and no other, so /dev/stdout is its maker's",
	"becomes_somebody":         "setpriority raises a priority, which only gVisor itself obeys",
	"clone_flags":              "no hidepid: the supervisor can be seen",
	"host_files":               "gVisor has a /sys, of its own making",
	"namespace_descriptors":    "what gVisor's /proc tells of the supervisor is not kept from programs",
	"ptrace_supervisor":        "what gVisor's /proc tells of the supervisor is not kept from programs",
	"parked_code":              "gVisor's vDSO has no name in maps, so the program takes it for ours and overwrites its own",
}

// enginesEnv is "all" where every engine is to be tried by the hostile programs,
// and not one of each family: they take seconds for each.
const enginesEnv = "SANDBOXD_ENGINES"

func TestRunsc_Conforms(t *testing.T) {
	testenv.Binary(t, "runsc")
	enginetest.Run(t, newEngine(t, docker.Config{Runtime: "runsc"}), enginetest.Options{
		Golden: "testdata/posture.runsc.golden", Unheld: unheldByRunsc, Quick: os.Getenv(enginesEnv) != "all",
	})
}

// TestCrun_WorksWhereItWorksByItself: crun refuses hybrid cgroups, and the Engine's
// cannot be taken from its sight.
func TestCrun_WorksWhereItWorksByItself(t *testing.T) {
	testenv.Binary(t, "crun")
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: "/sandboxd-docker-test-unused"})
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, docker.Config{Runtime: "crun"})
	s, err := e.Probe(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case groups.Hybrid() != "":
		if s.Usable || !strings.Contains(s.Reason, "cgroup") {
			t.Errorf("usable %v, %s", s.Usable, s.Reason)
		}
		t.Logf("not usable here: %s", s.Reason)
	default:
		enginetest.Run(t, e, enginetest.Options{Golden: "testdata/posture.docker.golden", Unheld: unheld})
	}
}

// unheldRemapped is what is left of that where the Engine maps users.
var unheldRemapped = map[string]string{
	"clone_flags": unheld["clone_flags"], "host_secrets": unheld["host_secrets"],
	"wakes_the_sleeper": "no hidepid: what /proc tells everybody of the supervisor can be read",
}

// TestRemapped_HoldsEveryLayer: where the Engine maps users, it is as strong as native.
func TestRemapped_HoldsEveryLayer(t *testing.T) {
	on := enginetest.StartDockerEngine(t, true)
	e := newEngine(t, docker.Config{Host: "unix://" + on.Socket})
	s, err := e.Probe(t.Context())
	if err != nil || !s.Usable {
		t.Fatalf("%v, %s", err, s.Reason)
	}
	for _, r := range s.Layers {
		if r.State != sandbox.LayerHeld && r.Layer != sandbox.LayerLandlock {
			t.Errorf("layer %s is %s: %s", r.Layer, r.State, r.Reason)
		}
	}
	enginetest.Run(t, e, enginetest.Options{
		Golden: "testdata/posture.remapped.golden", Unheld: unheldRemapped, Quick: os.Getenv(enginesEnv) != "all",
	})
}

func TestEngine_Conforms(t *testing.T) {
	enginetest.Run(t, newEngine(t, docker.Config{}), enginetest.Options{Golden: "testdata/posture.docker.golden", Unheld: unheld})
}
