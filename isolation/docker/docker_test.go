package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

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
			shared.engine, shared.err = enginetest.NewDockerEngine(dir, runtimes()...)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.engine
}

// runtimes are those of the test Engine beside its own.
func runtimes() []string { return nil }

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

func TestEngine_Conforms(t *testing.T) {
	enginetest.Run(t, newEngine(t, docker.Config{}), enginetest.Options{Golden: "testdata/posture.docker.golden", Unheld: unheld})
}
