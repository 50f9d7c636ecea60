package native_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// inside is one process of a test engine's sandboxes.
type inside struct {
	pid   string
	block uint32 // which sandbox
	id    uint32 // which of its ids
	state string
	fixed string // session and process group
}

// insiders lists the processes of sandboxes; the zygote is in block 0.
func insiders(t *testing.T) []inside {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []inside
	for _, e := range entries {
		if !isOurs(e.Name()) {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		id := hostID(e.Name()) - uidBase()
		if block := id / isolation.IDsPerSandbox; block > 0 {
			found = append(found, inside{e.Name(), block, id % isolation.IDsPerSandbox, fields[0], strings.Join(fields[2:4], " ")})
		}
	}
	return found
}

// TestSleeper_IsStoppedAndSomebodyElse: the first process of a ready sandbox is
// stopped, which no load average counts, and shares with the program neither
// user nor session nor group.
func TestSleeper_IsStoppedAndSomebodyElse(t *testing.T) {
	e := newEngineWithPool(t, 6)
	fill(t, e, 6)
	awaits(t, "the first processes are stopped", func() bool { // they may still be on their way
		stopped := 0
		for _, p := range insiders(t) {
			if p.id == isolation.SupervisorID && p.state == "T" {
				stopped++
			}
		}
		return stopped == 6
	})
	for range 20 {
		first, program := map[uint32]inside{}, map[uint32]inside{}
		for _, p := range insiders(t) {
			switch p.id {
			case isolation.SupervisorID:
				first[p.block] = p
				if p.state != "T" {
					t.Errorf("a first process is in state %s", p.state)
				}
			case 1: // the program's, see isolation.Spec
				program[p.block] = p
				if p.state != "S" {
					t.Errorf("a waiting program is in state %s", p.state)
				}
			default:
				t.Errorf("process %s has the id %d of block %d", p.pid, p.id, p.block)
			}
		}
		if len(first) != 6 || len(program) != 6 {
			t.Fatalf("%d first processes and %d programs in 6 ready sandboxes", len(first), len(program))
		}
		for block, p := range program {
			if p.fixed == first[block].fixed || p.fixed == "" {
				t.Errorf("sandbox %d: group and session %q are shared", block, p.fixed)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// statusOf is a line of a process's status.
func statusOf(pid, name string) string {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(status), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestSleeper_HandlesNoSignal: a handler would be code in memory that is the
// program's to write, run by a process without its filter.
func TestSleeper_HandlesNoSignal(t *testing.T) {
	e := newEngineWithPool(t, 1)
	fill(t, e, 1)
	for _, p := range insiders(t) {
		if p.id != isolation.SupervisorID {
			continue
		}
		if caught := statusOf(p.pid, "SigCgt"); caught == "" || strings.Trim(caught, "0") != "" {
			t.Errorf("it has handlers for the signals %q", caught)
		}
	}
}

// TestSleeper_WokenSleepsOn: the host's root may wake a first process at any
// time, before its run and in it; nothing comes of it.
func TestSleeper_WokenSleepsOn(t *testing.T) {
	e := newEngine(t)
	l := sandbox.DefaultLimits()
	for _, c := range []struct {
		text string
		code int
	}{
		{"import time\ntime.sleep(0.2)\nprint('right')\n", 0},
		{"import os, time\ntime.sleep(0.1)\nprint('right', flush=True)\nos._exit(3)\n", 3},
	} {
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "woken", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		wake := func() {
			for range 5 {
				if err := native.WakeFirst(sb); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		wake()
		conv := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &c.text}, sandbox.ModeScript, l))
		var woken sync.WaitGroup
		conv.OnStart = func() {
			woken.Go(func() {
				wake()
				for _, p := range insiders(t) {
					if p.id == isolation.SupervisorID && p.state != "S" {
						t.Errorf("a woken first process is in state %s", p.state)
					}
				}
			})
		}
		end, err := conv.Run()
		woken.Wait()
		if err := errors.Join(err, sb.Destroy(t.Context())); err != nil {
			t.Fatal(err)
		}
		if end.Stdout.Text() != "right\n" || end.Outcome.ExitCode != c.code || !end.Outcome.Exited {
			t.Errorf("stdout %q, %+v", end.Stdout.Text(), end.Outcome)
		}
	}
}

// TestAccident_FirstProcessKilled: no program can kill the first process, so its
// death is no verdict on the program. (A supervisor's is: it handles what hostile
// code sends, and its end must not be worth a second try.)
func TestAccident_FirstProcessKilled(t *testing.T) {
	e := newEngine(t)
	l := sandbox.DefaultLimits()
	for range 10 {
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "first", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		text := "import time\ntime.sleep(60)\n"
		conv := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l))
		conv.OnStart = func() {
			if err := native.KillFirst(sb); err != nil {
				t.Error(err)
			}
		}
		end, err := conv.Run()
		if err == nil {
			_, err = sb.Wait(t.Context())
		}
		failure := sb.Failure(t.Context())
		if err := errors.Join(err, sb.Destroy(t.Context())); err != nil {
			t.Fatal(err)
		}
		if failure == nil || sandbox.KindOf(failure) != sandbox.KindUnavailable {
			t.Fatalf("failure %v for %+v", failure, end.Outcome)
		}
	}
}

// TestAccident_OwnDeathIsTheProgramsOwn: a program that kills itself gets no
// failure of ours for it, which would be a second try.
func TestAccident_OwnDeathIsTheProgramsOwn(t *testing.T) {
	e := newEngine(t)
	l := sandbox.DefaultLimits()
	for _, text := range []string{
		"import os\nos.kill(os.getpid(), 9)\n",
		"import os, threading\nthreading.Thread(target=os.kill, args=(os.getpid(), 9)).start()\nos.kill(os.getpid(), 9)\n",
		"import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True:\n    pass\n",
	} {
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "own", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
		if err == nil {
			_, err = sb.Wait(t.Context())
		}
		failure := sb.Failure(t.Context())
		if err := errors.Join(err, failure, sb.Destroy(t.Context())); err != nil {
			t.Errorf("%v for %+v", err, end.Outcome)
		}
		if end.Outcome.Signal != 9 {
			t.Errorf("ended as %+v", end.Outcome)
		}
	}
}

// runAsKept is runOnce with the question that the daemon's keeper asks when a
// program has died.
func runAsKept(ctx context.Context, e *native.Engine, id, text string) (pyrunner.Ending, error) {
	l := sandbox.DefaultLimits()
	sb, err := e.Create(ctx, isolation.Plan{ID: id, Limits: l})
	if err != nil {
		return pyrunner.Ending{}, err
	}
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
	if err == nil && (end.Outcome.Lost || end.Outcome.Signal == 9) {
		_, err = sb.Wait(ctx)
		err = errors.Join(err, sb.Failure(ctx))
	}
	return end, errors.Join(err, sb.Destroy(context.WithoutCancel(ctx)))
}

// TestAccident_ReadySandboxesDie: whichever process of a ready sandbox was
// killed, no run is told so: it is right, or fails as ours, at most once for each
// that died.
func TestAccident_ReadySandboxesDie(t *testing.T) {
	const ready = 4
	e := newEngineWithPool(t, ready)
	fill(t, e, ready)
	for name, kill := range map[string]func(){"first processes": e.KillReady, "programs": e.KillReadyPrograms} {
		t.Run(name, func(t *testing.T) {
			for i := range 5 {
				for deadline := time.Now().Add(30 * time.Second); e.ReadyCount() < ready; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d sandboxes are ready", e.ReadyCount())
					}
				}
				kill()
				failed := 0
				for right := 0; right < ready; {
					end, err := runAsKept(t.Context(), e, fmt.Sprintf("ready-%d-%d", i, right), "print('right')")
					switch {
					case err == nil && end.Stdout.Text() != "right\n":
						t.Fatalf("stdout %q, %+v", end.Stdout.Text(), end.Outcome)
					case err == nil:
						right++
					default:
						failed++
					}
				}
				if failed > ready {
					t.Errorf("%d runs failed for %d sandboxes", failed, ready)
				}
				for j := range ready { // what lies deeper in the pool
					_, _ = runAsKept(t.Context(), e, fmt.Sprintf("deeper-%d-%d", i, j), "pass")
				}
			}
		})
	}
}

// TestAccident_ZygoteDiesUnderWaitingCreates: whoever waits for a sandbox then is
// told that it may try again, and the second try is right.
func TestAccident_ZygoteDiesUnderWaitingCreates(t *testing.T) {
	e := newEngine(t)
	if _, err := runOnce(t.Context(), e, "first", "pass"); err != nil {
		t.Fatal(err)
	}
	zygote, err := pidfd.Open(e.ZygotePID())
	if err != nil {
		t.Fatal(err)
	}
	defer zygote.Close()
	if err := zygote.Stop(); err != nil { // so that they wait
		t.Fatal(err)
	}
	const n = 12
	before := leftovers(t)
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			_, err := runOnce(ctx, e, fmt.Sprintf("waits-%d", i), "print('right')")
			if err == nil || sandbox.KindOf(err) != sandbox.KindUnavailable {
				t.Errorf("a create under a dying zygote ended with %v", err)
			}
			end, err := runOnce(ctx, e, fmt.Sprintf("again-%d", i), "print('right')")
			if err != nil || end.Stdout.Text() != "right\n" {
				t.Errorf("the second try: %v, %q", err, end.Stdout.Text())
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); e.Waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d orders wait", e.Waiting(), n)
		}
	}
	e.KillZygote()
	clients.Wait()
	if _, err := runOnce(t.Context(), e, "last", "pass"); err != nil {
		t.Error(err)
	}
	after := leftovers(t)
	for what, n := range before {
		if after[what] > n {
			t.Errorf("%s: %d before, %d after", what, n, after[what])
		}
	}
}

// TestZygote_IsReplacedUnderLoadWithoutLoss: every run while zygotes come and go
// is right at its first try.
func TestZygote_IsReplacedUnderLoadWithoutLoss(t *testing.T) {
	e := newEngineWithPool(t, 4)
	e.SetForksPerZygote(9)
	var clients sync.WaitGroup
	var mu sync.Mutex
	pids := map[int]bool{}
	for client := range 8 {
		clients.Go(func() {
			for i := range 15 {
				word := fmt.Sprintf("%d-%d", client, i)
				end, err := runOnce(t.Context(), e, "load-"+word, "import time\ntime.sleep(0.01)\nprint('"+word+"')\n")
				if err != nil || end.Stdout.Text() != word+"\n" || !end.Outcome.Exited {
					t.Errorf("run %s: %v, %q, %+v", word, err, end.Stdout.Text(), end.Outcome)
				}
				mu.Lock()
				pids[e.ZygotePID()] = true
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if len(pids) < 5 {
		t.Errorf("%d zygotes in 120 runs of 9 forks each", len(pids))
	}
	for deadline := time.Now().Add(10 * time.Second); e.RetiredCount() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d old zygotes are kept", e.RetiredCount())
		}
		if _, err := runOnce(t.Context(), e, "bury", "pass"); err != nil { // they are buried with an order
			t.Error(err)
		}
	}
}

// TestEngine_ClosesWhileItsPoolIsFilled: whatever is being made then is removed.
// The engine's close tells of a cgroup that is left.
func TestEngine_ClosesWhileItsPoolIsFilled(t *testing.T) {
	for i := range 12 {
		e := newEngineWithPool(t, 8)
		if _, err := runOnce(t.Context(), e, "first", "pass"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		if err := e.Close(t.Context()); err != nil {
			t.Fatalf("closed after %d ms: %v", i, err)
		}
	}
}
