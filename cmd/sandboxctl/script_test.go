package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/daemontest"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"sandboxctl": main})
}

// leakChecked fails a run of all tests that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left:", err)
		return 1
	}
	return code
}

// TestScripts runs the command line against daemons of this process: a whole
// one, one that lacks a required layer, and one that is always full.
func TestScripts(t *testing.T) {
	whole := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{fake.New(fake.Config{})}})
	support := fake.Without(fake.HoldsAll("fake"), sandbox.LayerNetNS, "unshare: EPERM", "load the module")
	weak := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{fake.New(fake.Config{Support: &support})}})
	full := daemontest.Start(t, daemontest.Options{
		Engines: []isolation.Engine{fake.New(fake.Config{})},
		Configure: func(c *config.Config) {
			c.Admission.MaxConcurrent, c.Admission.QueueLength, c.Shutdown.DrainMillis = 1, 0, 0
		},
	})
	stored := daemontest.Start(t, daemontest.Options{
		Engines: []isolation.Engine{fake.New(fake.Config{})}, Images: daemontest.NewImages("base", "team/x:1"),
		Configure: func(c *config.Config) { c.Images.Default = "base" },
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SANDBOXD_SOCKET", whole.Socket)
			e.Setenv("WEAK", weak.Socket)
			e.Setenv("FULL", full.Socket)
			e.Setenv("IMAGES", stored.Socket)
			e.Setenv("NOIMAGES", whole.Socket)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code},
	})
}

// code runs sandboxctl and wants a certain exit code: code 3 run …
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: code N [argument…]")
	}
	err := ts.Exec("sandboxctl", args[1:]...)
	if got := exitCode(err); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
