package native_test

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

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

func runOnce(ctx context.Context, e *native.Engine, id, text string) (pyrunner.Ending, error) {
	limits := sandbox.DefaultLimits()
	sb, err := e.Create(ctx, isolation.Plan{ID: id, Limits: limits})
	if err != nil {
		return pyrunner.Ending{}, err
	}
	req := pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits)
	end, err := sb.Converse(req).Run()
	if err == nil && end.Outcome.Signal == 9 { // as the keeper does: not every kill is the program's end
		_, err = sb.Wait(ctx)
		err = errors.Join(err, sb.Failure(ctx))
	}
	return end, errors.Join(err, sb.Destroy(context.WithoutCancel(ctx)))
}

// leftovers counts what the engine could leave: its cgroups, the daemon's
// descriptors and mounts, and processes below the zygote.
func leftovers(t *testing.T) map[string]int {
	t.Helper()
	count := map[string]int{}
	groups := 0
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, fmt.Sprintf("/sandboxd-test-%d/run-", os.Getpid())) {
			groups++
		}
		return nil
	})
	count["cgroups"] = groups
	for name, path := range map[string]string{"descriptors": "/proc/self/fd", "processes": "/proc"} {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name == "descriptors" || isOurs(e.Name()) {
				count[name]++
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	count["mounts"] = strings.Count(string(mounts), "\n")
	return count
}

// isOurs: the process has one of the test engine's host ids.
func isOurs(pid string) bool {
	id := hostID(pid)
	return id >= uidBase() && id < uidBase()+idsPerTest
}

// hostID is a process's real user id, 0 when it has ended.
func hostID(pid string) uint32 {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nUid:\t")
	word, _, _ := strings.Cut(rest, "\t")
	id, _ := strconv.ParseUint(word, 10, 32)
	return uint32(id)
}

func TestEngine_LeavesNothing(t *testing.T) {
	e := newEngine(t)
	if _, err := runOnce(t.Context(), e, "warm", "pass"); err != nil {
		t.Fatal(err)
	}
	before := leftovers(t)
	for i := range 20 {
		text := []string{"pass", "import os; os.abort()", "import os; os._exit(3)", "while True: print('x' * 4000)"}[i%4]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sb, err := e.Create(ctx, isolation.Plan{ID: fmt.Sprintf("leave-%d", i), Limits: sandbox.DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			req := pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, sandbox.DefaultLimits())
			_, _ = sb.Converse(req).Run()
		}()
		if i%4 == 3 {
			time.Sleep(20 * time.Millisecond) // destroyed in the middle
		} else {
			<-done
		}
		if err := sb.Destroy(ctx); err != nil {
			t.Error(err)
		}
		<-done
		cancel()
	}
	after := leftovers(t)
	for what, n := range before {
		if after[what] != n {
			t.Errorf("%s: %d before, %d after", what, n, after[what])
		}
	}
}

func TestEngine_HealsAfterItsZygoteEnded(t *testing.T) {
	e := newEngine(t)
	if _, err := runOnce(t.Context(), e, "one", "pass"); err != nil {
		t.Fatal(err)
	}
	old := e.ZygotePID()
	e.KillZygote()
	end, err := runOnce(t.Context(), e, "two", "print('again')")
	if sandbox.KindOf(err) == sandbox.KindUnavailable { // noticed only by the order that failed
		end, err = runOnce(t.Context(), e, "three", "print('again')")
	}
	if err != nil || string(end.Stdout.Head) != "again\n" {
		t.Fatalf("stdout %q, %v", end.Stdout.Head, err)
	}
	if e.ZygotePID() == old {
		t.Error("the zygote is the old one")
	}
}

func TestEngine_RefusesWhenClosed(t *testing.T) {
	e := newEngine(t)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := runOnce(t.Context(), e, "late", "pass"); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("got %v", err)
	}
}

// TestEngine_NeverRunsWeaker: whichever required layer is missing, nothing is
// made and the refusal names it.
func TestEngine_NeverRunsWeaker(t *testing.T) {
	e := newEngine(t)
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, layer := range sandbox.Layers() {
		t.Run(string(layer), func(t *testing.T) {
			e.PretendMissing(layer, "as the test says")
			sb, err := e.Create(t.Context(), isolation.Plan{
				ID: "weaker", Limits: sandbox.DefaultLimits(), Require: []sandbox.Layer{layer},
			})
			if err == nil {
				_ = sb.Destroy(t.Context())
				t.Fatal("a sandbox was made")
			}
			if sandbox.KindOf(err) != sandbox.KindDenied || !strings.Contains(err.Error(), string(layer)) || !strings.Contains(err.Error(), "as the test says") {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

// TestEngine_CallersWhoLeaveBreakNothing: a sandbox given up at any moment of
// its making ends, and the zygote stays alone with its rights.
func TestEngine_CallersWhoLeaveBreakNothing(t *testing.T) {
	e := newEngine(t)
	if _, err := runOnce(t.Context(), e, "first", "pass"); err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*200*time.Microsecond)
		sb, err := e.Create(ctx, isolation.Plan{ID: fmt.Sprintf("leave-%d", i), Limits: sandbox.DefaultLimits()})
		if err == nil {
			err = sb.Destroy(t.Context())
		} else {
			err = nil // given up in time
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if end, err := runOnce(t.Context(), e, fmt.Sprintf("after-%d", i), "print('right')"); err != nil || end.Stdout.Text() != "right\n" {
			t.Fatalf("run %d: %v, %q", i, err, end.Stdout.Text())
		}
	}
	zygotes := 0
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if hostID(e.Name()) == uidBase() {
			zygotes++
		}
	}
	if zygotes != 1 {
		t.Errorf("%d processes have the zygote's id", zygotes)
	}
}

// TestEngine_TellsItsOwnFailure: when the zygote dies under a run, that is no
// verdict on the program.
func TestEngine_TellsItsOwnFailure(t *testing.T) {
	e := newEngine(t)
	limits := sandbox.DefaultLimits()
	sb, err := e.Create(t.Context(), isolation.Plan{ID: "fails", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	text := "import time\ntime.sleep(60)\n"
	conv := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits))
	conv.OnStart = e.KillZygote
	end, err := conv.Run()
	if err != nil || !end.Outcome.Lost {
		t.Fatalf("%v, %+v", err, end.Outcome)
	}
	if _, err := sb.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Failure(t.Context()); sandbox.KindOf(err) != sandbox.KindUnavailable || err == nil {
		t.Errorf("failure: %v", err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	healthy, err := e.Create(t.Context(), isolation.Plan{ID: "works", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(healthy.Kill(), healthy.Failure(t.Context()), healthy.Destroy(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestEngine_MemoryOfTheHostIsNoVerdict: the kernel kills in the run's group
// for a limit above it too; that is not the run's own limit.
func TestEngine_MemoryOfTheHostIsNoVerdict(t *testing.T) {
	e := newEngine(t)
	limits := sandbox.DefaultLimits()
	sb, err := e.Create(t.Context(), isolation.Plan{ID: "host-memory", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	parent := fmt.Sprintf("/sys/fs/cgroup/memory/sandboxd-test-%d/memory.limit_in_bytes", os.Getpid())
	if _, err := os.Stat(parent); err != nil { // unified
		parent = fmt.Sprintf("/sys/fs/cgroup/sandboxd-test-%d/memory.max", os.Getpid())
	}
	if err := os.WriteFile(parent, []byte(strconv.Itoa(110<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "x = bytearray(150 << 20)\nfor i in range(0, len(x), 4096):\n    x[i] = 1\n"
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, limits)).Run()
	if err != nil || end.Outcome.Exited {
		t.Errorf("%v, %+v", err, end.Outcome)
	}
	facts, err := sb.Wait(t.Context())
	if err != nil || facts.OOMKills != 0 {
		t.Errorf("%v, %d kills counted as the run's own", err, facts.OOMKills)
	}
	if err := sb.Failure(t.Context()); err == nil || sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("failure: %v", err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestZygote_GivesWay: sandboxes are made ahead and taken down at a lower priority
// than programs run, with a supervisor or without; not while runs wait for one.
func TestZygote_GivesWay(t *testing.T) {
	e := newEngineWithPool(t, 2)
	nice := func() string {
		group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", e.ZygotePID()))
		if err != nil {
			t.Fatal(err)
		}
		_, nice, _ := strings.Cut(strings.TrimSpace(string(group)), " nice ")
		return nice
	}
	fill(t, e, 2)
	for deadline := time.Now().Add(5 * time.Second); nice() != "10"; {
		if time.Now().After(deadline) {
			t.Fatalf("with a full pool the zygote's nice is %q", nice())
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, processes := range []int64{0, 2} {
		limits := sandbox.DefaultLimits()
		limits.Processes = processes
		out := runOn(t, e, limits, `print(open("/proc/self/autogroup").read())`).stdout()
		if _, nice, _ := strings.Cut(strings.TrimSpace(out), " nice "); nice != "0" {
			t.Errorf("with %d processes the program's scheduling group is %q", processes, out)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); nice() != "0"; {
		if time.Now().After(deadline) {
			t.Fatalf("while runs wait the zygote's nice is %q", nice())
		}
		e.Hurry() // the pool is being filled, and takes it back when it is full
	}
}
