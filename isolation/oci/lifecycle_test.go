package oci_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

func plan(l sandbox.Limits) isolation.Plan {
	return isolation.Plan{ID: "test", Limits: l}
}

// runOnce runs a script in a sandbox of its own.
func runOnce(ctx context.Context, e *oci.Engine, l sandbox.Limits, text string) (pyrunner.Ending, error) {
	return runPlan(ctx, e, plan(l), text)
}

func runPlan(ctx context.Context, e *oci.Engine, p isolation.Plan, text string) (pyrunner.Ending, error) {
	sb, err := e.Create(ctx, p)
	if err != nil {
		return pyrunner.Ending{}, err
	}
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, p.Limits)).Run()
	return end, errors.Join(err, sb.Destroy(context.WithoutCancel(ctx)))
}

// leftovers lists what an engine of this process has left on the host. Processes
// that were killed may still be on their way out.
func leftovers(t *testing.T, name, dir string) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if left := present(t, name, dir); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// present lists what an engine of this process could leave on the host.
func present(t *testing.T, name, dir string) []string {
	t.Helper()
	var out []string
	hierarchies, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range append(hierarchies, nil) {
		root := "/sys/fs/cgroup"
		if h != nil {
			root = filepath.Join(root, h.Name())
		}
		groups, _ := filepath.Glob(root + cgroupParent(name) + "/*")
		for _, g := range groups {
			if info, err := os.Stat(g); err == nil && info.IsDir() {
				out = append(out, g)
			}
		}
	}
	for _, below := range []string{"state", "bundles"} {
		entries, _ := os.ReadDir(filepath.Join(dir, below))
		for _, e := range entries {
			out = append(out, below+"/"+e.Name())
		}
	}
	return append(out, processes(t, name, dir)...)
}

// processes are those with an id of the engine, or with its directory among their
// arguments: runtimes, and gVisor.
func processes(t *testing.T, name, dir string) []string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil || strings.Contains(string(status), "State:\tZ") {
			continue
		}
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		_, rest, _ := strings.Cut(string(status), "\nUid:\t")
		word, _, _ := strings.Cut(rest, "\t")
		id, _ := strconv.ParseUint(word, 10, 32)
		if (id >= uint64(uidBase(name)) && id < uint64(uidBase(name))+idsPerEngine) || strings.Contains(string(args), dir) {
			out = append(out, "process "+e.Name()+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}

func engineIn(t *testing.T, name string, cfg oci.Config) (*oci.Engine, string) {
	t.Helper()
	testenv.Binary(t, name)
	cfg.Runtime, cfg.Dir = name, passableDir(t)
	return newEngineLike(t, cfg), cfg.Dir
}

func TestEngine_LeavesNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, name string) {
		e, dir := engineIn(t, name, oci.Config{})
		descriptors := -1
		for i, text := range []string{"pass", "import os; os.abort()", "import os; os._exit(3)", "while True: print('x' * 4000)", "pass"} {
			sb, err := e.Create(t.Context(), plan(sandbox.DefaultLimits()))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, sandbox.DefaultLimits())).Run()
			}()
			if i == 3 {
				time.Sleep(50 * time.Millisecond) // destroyed in the middle
			} else {
				<-done
			}
			if err := sb.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			<-done
			if left := leftovers(t, name, dir); len(left) > 0 {
				t.Errorf("after %q: %s", text, strings.Join(left, "\n"))
			}
			open, _ := os.ReadDir("/proc/self/fd")
			if descriptors >= 0 && len(open) > descriptors {
				t.Errorf("after %q: %d descriptors are open, %d were", text, len(open), descriptors)
			}
			descriptors = len(open)
		}
		// Others may mount and unmount on this host meanwhile.
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), dir) {
			t.Errorf("the host sees mounts of the engine: %v\n%s", err, mounts)
		}
	})
}

// TestEngine_ReapsWhatADeadDaemonLeft, and nothing of another's.
func TestEngine_ReapsWhatADeadDaemonLeft(t *testing.T) {
	eachRuntime(t, func(t *testing.T, name string) {
		dead, dir := engineIn(t, name, oci.Config{})
		sb, err := dead.Create(t.Context(), plan(sandbox.DefaultLimits()))
		if err != nil {
			t.Fatal(err)
		}
		if len(present(t, name, dir)) == 0 {
			t.Fatal("a live container cannot be seen")
		}
		next := newEngineLike(t, oci.Config{Runtime: name, Dir: dir})
		if err := next.Reap(t.Context()); err != nil {
			t.Error(err)
		}
		if left := leftovers(t, name, dir); len(left) > 0 {
			t.Errorf("left: %s", strings.Join(left, "\n"))
		}
		if err := sb.Destroy(t.Context()); err != nil { // the dead one's own books
			t.Error(err)
		}
		if end, err := runOnce(t.Context(), next, sandbox.DefaultLimits(), "print('well')"); err != nil || end.Stdout.Text() != "well\n" {
			t.Errorf("%q, %v", end.Stdout.Text(), err)
		}
	})
}

// fakeRuntime is a program that behaves as script says.
func fakeRuntime(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

// TestEngine_EndsARuntimeThatHangs: with the caller's patience, and all that it
// has started.
func TestEngine_EndsARuntimeThatHangs(t *testing.T) {
	testenv.Cgroup(t)
	program := fakeRuntime(t, `case "$*" in
*--version*) echo "runc version 9.9.9" ;;
*" run "*) sleep 300 & wait ;;
esac
`)
	cfg := oci.Config{Runtime: oci.Runc, Program: program, Dir: passableDir(t)}
	e := newEngineLike(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	support, err := e.Probe(ctx)
	if err != nil || support.Usable || !strings.Contains(support.Reason, "killed") {
		t.Errorf("%v, usable %v, %q", err, support.Usable, support.Reason)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if left := leftovers(t, oci.Runc, cfg.Dir); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, "\n"))
	}
}

func TestProbe_RefusesOldRuntimes(t *testing.T) {
	testenv.Cgroup(t)
	for _, c := range []struct{ says, least, want string }{
		{"runc version 1.0.0-rc10", "", "older than 1.1.5"},
		{"runc version 1.0.0-rc10", "1.0.0", "no sandbox could be made"},
		{"something else", "", "no version"},
	} {
		t.Run(c.says+" "+c.least, func(t *testing.T) {
			program := fakeRuntime(t, fmt.Sprintf(`case "$*" in *--version*) echo %q ;; *) exit 1 ;; esac`, c.says))
			e := newEngineLike(t, oci.Config{Runtime: oci.Runc, Program: program, MinVersion: c.least})
			support, err := e.Probe(t.Context())
			if err != nil || support.Usable {
				t.Fatalf("usable %v, %v", support.Usable, err)
			}
			if got := support.Layer(sandbox.LayerPIDNS).Reason; !strings.Contains(got, c.want) {
				t.Errorf("reason %q, want %q", got, c.want)
			}
			if _, err := e.Create(t.Context(), plan(sandbox.DefaultLimits())); sandbox.KindOf(err) != sandbox.KindUnavailable {
				t.Errorf("create: %v", err)
			}
		})
	}
}

func TestProbe_TellsWhatIsMissing(t *testing.T) {
	testenv.Cgroup(t)
	e := newEngineLike(t, oci.Config{Runtime: oci.Crun, Program: "/nowhere/crun"})
	support, err := e.Probe(t.Context())
	if err != nil || support.Usable || !strings.Contains(support.Reason, "/nowhere/crun") {
		t.Errorf("%v, usable %v, %q", err, support.Usable, support.Reason)
	}
}

// TestProbe_DeclaresWhatRunscLacks: each missing layer has its reason, and all the
// others hold.
func TestProbe_DeclaresWhatRunscLacks(t *testing.T) {
	e := newEngine(t, oci.Runsc)
	support, err := e.Probe(t.Context())
	if err != nil || !support.Usable {
		t.Fatalf("%v, %s", err, support.Reason)
	}
	lacks := map[sandbox.Layer]string{
		sandbox.LayerLandlock:    "no Landlock",
		sandbox.LayerDistinctUID: "one host id",
		sandbox.LayerPrivateTmp:  "nr_inodes",
		sandbox.LayerMaskedProc:  "not masked",
		sandbox.LayerCgroupNS:    "the daemon's",
	}
	for _, r := range support.Layers {
		reason, lacking := lacks[r.Layer]
		if (r.State == sandbox.LayerHeld) == lacking || !strings.Contains(r.Reason, reason) {
			t.Errorf("layer %s is %s: %s", r.Layer, r.State, r.Reason)
		}
	}
	for name, support := range support.Limits {
		want := isolation.Enforced
		if name == "processes" || name == "threads" || name == "workspace_inodes" {
			want = isolation.Unsupported
		}
		if support != want {
			t.Errorf("limit %s is %s", name, support)
		}
	}
}

// TestEngine_HoldsEveryLayer: runc and crun are as strong as native.
func TestEngine_HoldsEveryLayer(t *testing.T) {
	for _, name := range []string{oci.Runc, oci.Crun} {
		t.Run(name, func(t *testing.T) {
			support, err := newEngine(t, name).Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range support.Layers {
				if r.State != sandbox.LayerHeld && r.Layer != sandbox.LayerLandlock {
					t.Errorf("layer %s is %s: %s", r.Layer, r.State, r.Reason)
				}
			}
		})
	}
}
