//go:build linux

package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// roleVariable makes the re-executed test binary a member of a group: it joins
// through the descriptors from 3 on, then does what the role says.
const roleVariable = "CGROUP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(member(role))
	}
	os.Exit(m.Run())
}

func member(role string) int {
	switch role {
	case "hog":
		var kept [][]byte
		for range 256 {
			page := bytes.Repeat([]byte{1}, 1<<20)
			kept = append(kept, page)
		}
		return len(kept) % 2
	case "spin":
		// What was used before the group was joined does not count.
		for start := cpuTime(); cpuTime()-start < 200*time.Millisecond; {
		}
		return 0
	case "forks":
		for range 64 {
			if err := exec.Command("sleep", "60").Start(); errors.Is(err, unix.EAGAIN) {
				return 0
			}
		}
		return 1
	case "sleep":
		time.Sleep(time.Minute)
		return 1
	}
	return 2
}

func cpuTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Nano())
}

// newManager makes a manager with a parent of its own, and checks in the end that
// nothing is left of it.
func newManager(t *testing.T) *Manager {
	t.Helper()
	testenv.Cgroup(t)
	parent := fmt.Sprintf("/sandboxd-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	m, err := New(Config{Root: DefaultRoot, Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("groups were left: %v", err)
		}
		parents, err := m.tree.parents()
		if err != nil {
			t.Error(err)
		}
		for _, dir := range parents {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return m
}

func newGroup(t *testing.T, m *Manager, l Limits) *Group {
	t.Helper()
	g, err := m.Create("run", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(within(t)), g.Delete(within(t))); err != nil {
			t.Error(err)
		}
	})
	return g
}

func within(t *testing.T) context.Context {
	t.Helper()
	// Cleanups run after t.Context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// startMember starts a member of g. A shell joins and then execs: a Go program
// has several threads before it could write to tasks.
func startMember(t *testing.T, g *Group, role, script string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if script == "" {
		script = `exec "$0"`
	}
	var join strings.Builder
	for i := range g.AttachFiles() {
		fmt.Fprintf(&join, "echo 0 >&%d && ", 3+i)
	}
	cmd := exec.Command(testenv.Binary(t, "sh"), "-c", join.String()+script, self)
	cmd.Env = []string{roleVariable + "=" + role, "PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1"}
	cmd.ExtraFiles = g.AttachFiles()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

var roomy = Limits{MemoryBytes: 512 << 20, Pids: 64}

func TestGroup_KernelKillsMemoryHog(t *testing.T) {
	g := newGroup(t, newManager(t), Limits{MemoryBytes: 48 << 20, Pids: 64})
	cmd, out := startMember(t, g, "hog", "")
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Fatalf("hog ended with %v: %s", err, out)
	}
	kills, err := g.OOMKills()
	if err != nil || kills != 1 {
		t.Errorf("%d kills counted, %v", kills, err)
	}
	peak, err := g.MemoryPeakBytes()
	// The kernel notes a peak before it takes an excess back: a page or so more.
	if err != nil || peak < 40<<20 || peak > 49<<20 {
		t.Errorf("peak %d, %v", peak, err)
	}
}

func TestGroup_PidsLimitHolds(t *testing.T) {
	g := newGroup(t, newManager(t), Limits{MemoryBytes: 256 << 20, Pids: 24})
	cmd, out := startMember(t, g, "forks", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("fork was not refused with EAGAIN: %v, %s", err, out)
	}
	pids, err := g.Procs()
	if err != nil || len(pids) == 0 || len(pids) > 24 {
		t.Errorf("%d processes, %v", len(pids), err)
	}
	if empty, err := g.Empty(); err != nil || empty {
		t.Errorf("empty %v with %d processes, %v", empty, len(pids), err)
	}
	if err := g.Kill(within(t)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // until they are reaped
		empty, err := g.Empty()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("empty %v, %v", empty, err)
		}
		if empty {
			break
		}
	}
}

func TestGroup_CountsCPU(t *testing.T) {
	g := newGroup(t, newManager(t), roomy)
	cmd, out := startMember(t, g, "spin", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	total, err := g.CPUMicros()
	if err != nil || total < 190_000 || total > 2_000_000 {
		t.Errorf("total %d µs, %v", total, err)
	}
	cpu, err := g.CPU()
	rest := cpu.TotalMicros - cpu.UserMicros - cpu.SystemMicros
	if err != nil || cpu.TotalMicros < total || cpu.UserMicros <= 0 || rest < -1000 || rest > 1000 {
		t.Errorf("split %+v, %v", cpu, err)
	}
	err = g.Reset()
	if errors.Is(err, ErrFixedPeak) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if total, err := g.CPUMicros(); err != nil || total != 0 {
		t.Errorf("after reset: %d µs, %v", total, err)
	}
	if peak, err := g.MemoryPeakBytes(); err != nil || peak > 8<<20 {
		t.Errorf("after reset: peak %d, %v", peak, err)
	}
}

func TestGroup_QuotaSlowsDown(t *testing.T) {
	l := roomy
	l.CPUQuotaMicros = 10_000 // a tenth of a CPU
	g := newGroup(t, newManager(t), l)
	start := time.Now()
	cmd, out := startMember(t, g, "spin", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("200 ms of CPU at a tenth took %v", took)
	}
}

func TestGroup_KillEndsForkBomb(t *testing.T) {
	g := newGroup(t, newManager(t), Limits{MemoryBytes: 64 << 20, Pids: 32})
	// Every process forks two heirs and dies: a loop over pids alone runs behind.
	cmd, _ := startMember(t, g, "", `f() { f & f & }; f; f; while :; do f; done 2>/dev/null`)
	time.Sleep(100 * time.Millisecond)
	if err := g.Kill(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the bomb ended by itself")
	}
	pids, err := g.Procs()
	if err != nil || len(pids) != 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
	if limit, err := readInt(g.files.pidsMax); err != nil || limit != 32 {
		t.Errorf("pids limit is %d after Kill, %v", limit, err)
	}
}

func TestGroup_UpdateBothWays(t *testing.T) {
	m := newManager(t)
	g := newGroup(t, m, Limits{MemoryBytes: 64 << 20, Pids: 8})
	for _, bytes := range []int64{128 << 20, 32 << 20, 96 << 20} {
		if err := g.Update(Limits{MemoryBytes: bytes, Pids: 9}); err != nil {
			t.Fatal(err)
		}
		probe := m.tree.probes()[0]
		if got, err := readInt(probe.file("run")); err != nil || got != bytes {
			t.Errorf("limit is %d, want %d; %v", got, bytes, err)
		}
	}
	if err := g.Update(Limits{MemoryBytes: 1 << 20, Pids: 9, CPUQuotaMicros: 5000}); err == nil {
		t.Error("a group without the cpu controller took a quota")
	}
}

func TestCreate_RefusesExisting(t *testing.T) {
	m := newManager(t)
	newGroup(t, m, roomy)
	if _, err := m.Create("run", roomy); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
}

func TestManager_ReapRemovesEverything(t *testing.T) {
	m := newManager(t)
	g, err := m.Create("dead", roomy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create("empty", roomy); err != nil {
		t.Fatal(err)
	}
	cmd, _ := startMember(t, g, "sleep", "")
	waitMembers(t, g, 1)
	half := halfAttached(t, g)
	if err := m.Reap(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{cmd, half} {
		if err := c.Wait(); err == nil {
			t.Error("a member outlived Reap")
		}
	}
	// newManager's cleanup checks that no directory is left.
}

// halfAttached starts a process that is in only one of the group's hierarchies,
// as after a crash in the middle of an attach.
func halfAttached(t *testing.T, g *Group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "sleep"), "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := g.dirs[len(g.dirs)-1]
	if err := write(filepath.Join(last, "cgroup.procs"), fmt.Sprint(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func waitMembers(t *testing.T, g *Group, n int) {
	t.Helper()
	if err := poll(within(t), func() (bool, error) {
		pids, err := g.Procs()
		return len(pids) >= n, err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestProbe_HoldsHere(t *testing.T) {
	m := newManager(t)
	findings, err := m.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if !f.Held {
			t.Errorf("%s: %s (%s)", f.Controller, f.Reason, f.Mend)
		}
	}
	if len(findings) != 4 {
		t.Errorf("%d findings", len(findings))
	}
}

func TestDelete_WaitsNoLongerThanAsked(t *testing.T) {
	m := newManager(t)
	g := newGroup(t, m, roomy)
	cmd, _ := startMember(t, g, "sleep", "")
	waitMembers(t, g, 1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("asked"))
	defer cancel()
	if err := g.Delete(ctx); err == nil || !strings.Contains(err.Error(), "asked") {
		t.Errorf("got %v", err)
	}
	if err := g.Kill(within(t)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}
