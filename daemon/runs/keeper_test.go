package runs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

func testConfig() Config {
	return Config{
		MaxConcurrent: 4, QueueLength: 4,
		Defaults: sandbox.DefaultLimits(), Ceilings: sandbox.DefaultCeilings(),
		DefaultEngine: Auto, EngineOrder: []string{"fake"}, Require: []sandbox.Layer{}, Timing: DefaultTiming(),
	}
}

// manage makes a manager over one scripted engine.
func manage(t *testing.T, cfg Config, script fake.Config) (*Manager, *fake.Engine) {
	t.Helper()
	e := fake.New(script)
	support, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, []Engine{{Engine: e, Support: support}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m, e
}

func script(text string, limits sandbox.Limits) Order {
	return Order{Spec: &sandbox.Spec{Program: &text, Limits: limits}}
}

// rest waits for every keeper and checks that no sandbox is left.
func rest(t *testing.T, m *Manager, e *fake.Engine) {
	t.Helper()
	m.live.keepers.Wait()
	if made, live := e.Counts(); live != 0 {
		t.Errorf("%d of %d sandboxes are left", live, made)
	}
	if list := m.List(tenants.Caller{}); len(list) != 0 {
		t.Errorf("%d runs are still listed", len(list))
	}
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	if want := m.planner.cfg.MaxConcurrent; m.queue.slots != want {
		t.Errorf("%d slots are free, want %d", m.queue.slots, want)
	}
}

// ended is what one scripted run must come to.
type ended struct {
	name    string
	text    string
	limits  sandbox.Limits
	verdict sandbox.Verdict
	reason  string
	stdout  string
	atLeast time.Duration // of virtual time until the reply
	within  time.Duration
}

func TestKeeper_EndsRuns(t *testing.T) {
	second := sandbox.Limits{WallMillis: 1000}
	for _, c := range []ended{
		{name: "end of itself", text: "#fake print hi", verdict: sandbox.Passed, stdout: "hi\n"},
		{name: "left early", text: "#fake exit 3", verdict: sandbox.Exited},
		{name: "signal", text: "#fake signal 11", verdict: sandbox.Crashed, reason: sandbox.ReasonSignal},
		{name: "protocol", text: "#fake print hi\n#fake garble", verdict: sandbox.Crashed, reason: sandbox.ReasonProtocol, stdout: "hi\n"},
		{name: "vanished", text: "#fake die", verdict: sandbox.Crashed, reason: sandbox.ReasonProtocol},
		{name: "out of memory", text: "#fake oom", verdict: sandbox.MemoryLimit},
		{
			name: "wall limit keeps the output", text: "#fake print hi\n#fake hang", limits: second,
			verdict: sandbox.WallLimit, stdout: "hi\n", atLeast: time.Second, within: time.Second,
		},
		{
			name: "supervisor that does not answer is killed", text: "#fake print hi\n#fake deaf", limits: second,
			verdict: sandbox.WallLimit, stdout: "hi\n", atLeast: 2 * time.Second, within: 2 * time.Second,
		},
		{
			name: "CPU limit of one core", text: "#fake burn 1\n#fake hang", limits: sandbox.Limits{CPUMillis: 1000},
			verdict: sandbox.CPULimit, atLeast: time.Second, within: 1250 * time.Millisecond,
		},
		{
			name: "CPU limit of a trickle", text: "#fake burn 0.1\n#fake hang", limits: sandbox.Limits{CPUMillis: 100},
			verdict: sandbox.CPULimit, atLeast: time.Second, within: 1250 * time.Millisecond,
		},
		{
			name: "the first cause wins", text: "#fake burn 1\n#fake deaf", limits: sandbox.Limits{CPUMillis: 1000, WallMillis: 1500},
			verdict: sandbox.CPULimit, atLeast: 2 * time.Second, within: 2250 * time.Millisecond,
		},
		{
			name: "output limit", text: "#fake flood 5000\n#fake signal 9", limits: sandbox.Limits{OutputStopBytes: 4096},
			verdict: sandbox.OutputLimit, stdout: strings.Repeat("x", 5000),
		},
		{
			name: "much output and an end of its own", text: "#fake flood 5000\n#fake exit 0", limits: sandbox.Limits{OutputStopBytes: 4096},
			verdict: sandbox.OutputLimit, stdout: strings.Repeat("x", 5000), // the total decides, not a race
		},
		{
			name: "reply waits for the whole tree", text: "#fake linger 700\n#fake print hi",
			verdict: sandbox.Passed, stdout: "hi\n", atLeast: 700 * time.Millisecond, within: 700 * time.Millisecond,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.check(t) })
		})
	}
}

func (c ended) check(t *testing.T) {
	m, e := manage(t, testConfig(), fake.Config{})
	begin := time.Now()
	res, err := m.Run(t.Context(), tenants.Caller{UID: 7}, script(c.text, c.limits))
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict != c.verdict || res.Reason != c.reason || res.Stdout != c.stdout {
		t.Errorf("verdict %s (%s), stdout %.40q", res.Verdict, res.Reason, res.Stdout)
	}
	if took < c.atLeast || took > c.within {
		t.Errorf("took %s, want %s to %s", took, c.atLeast, c.within)
	}
	if res.Owner != 7 || res.Engine != "fake" || !strings.HasPrefix(res.ID, "run_") || len(res.Layers) == 0 {
		t.Errorf("result %+v", res)
	}
	if made, _ := e.Counts(); made != 1 {
		t.Errorf("%d sandboxes were made", made)
	}
	rest(t, m, e)
}

// cancelWhen cancels the run by its owner once it is in a state.
func cancelWhen(t *testing.T, m *Manager, state State, who tenants.Caller) {
	t.Helper()
	synctest.Wait()
	for _, r := range m.List(tenants.Caller{}) {
		if r.State == state {
			if err := m.Cancel(who, r.ID); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("no run is %s: %v", state, m.List(tenants.Caller{}))
}

func TestKeeper_CancelsInEveryState(t *testing.T) {
	owner := tenants.Caller{UID: 7}
	for _, c := range []struct {
		state  State
		script fake.Config
		slots  int
	}{
		{Running, fake.Config{}, 1},
		{Preparing, fake.Config{CreateDelay: time.Second}, 1},
		{Queued, fake.Config{}, 1},
	} {
		t.Run(string(c.state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.MaxConcurrent = c.slots
				m, e := manage(t, cfg, c.script)
				answers := make(chan reply, 2)
				run := func() {
					res, err := m.Run(t.Context(), owner, script("#fake deaf", sandbox.Limits{}))
					answers <- reply{res, err}
				}
				go run()
				if c.state == Queued {
					synctest.Wait()
					go run()
				}
				cancelWhen(t, m, c.state, owner)
				got := <-answers
				if got.err != nil || got.result.Verdict != sandbox.Canceled {
					t.Errorf("canceled %s run: %s, %v", c.state, got.result.Verdict, got.err)
				}
				if c.state == Queued {
					cancelWhen(t, m, Running, tenants.Caller{UID: 0})
					<-answers
				}
				rest(t, m, e)
			})
		})
	}
}

func TestKeeper_CallerLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		res, err := m.Run(ctx, tenants.Caller{}, script("#fake deaf", sandbox.Limits{}))
		if err != nil || res.Verdict != sandbox.Canceled || time.Since(begin) != time.Second {
			t.Errorf("%s after %s, %v", res.Verdict, time.Since(begin), err)
		}
		rest(t, m, e)
	})
}

func TestKeeper_RetriesSetupOnce(t *testing.T) {
	broken := &sandbox.StepError{Step: "mount", Errno: 12}
	for _, c := range []struct {
		name     string
		failures int
		err      error
		kind     sandbox.Kind // of the answer, when there is no result
		tries    int
	}{
		{"one failure", 1, broken, "", 2},
		{"two failures", 2, broken, sandbox.KindInternal, 2},
		{"unavailable twice", 2, sandbox.Errorf(sandbox.KindUnavailable, "create", "", "zygote is gone"), sandbox.KindUnavailable, 2},
		{"a file that does not fit", 1, &sandbox.StepError{Step: "write file a", Errno: 28}, sandbox.KindInvalid, 1},
		{"a denial is no accident", 1, sandbox.Errorf(sandbox.KindDenied, "create", "layer seccomp", "gone"), sandbox.KindDenied, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				m, e := manage(t, testConfig(), fake.Config{CreateError: func(n int, _ isolation.Plan) error {
					tries = n
					if n <= c.failures {
						return c.err
					}
					return nil
				}})
				res, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{}))
				if c.kind == "" && (err != nil || res.Verdict != sandbox.Passed) {
					t.Errorf("%s, %v", res.Verdict, err)
				}
				if c.kind != "" && (err == nil || sandbox.KindOf(err) != c.kind || !errors.Is(err, c.err)) {
					t.Errorf("error %v, want kind %s", err, c.kind)
				}
				if tries != c.tries {
					t.Errorf("%d tries, want %d", tries, c.tries)
				}
				rest(t, m, e)
			})
		})
	}
}

func TestKeeper_FailedStepIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{})
		_, err := m.Run(t.Context(), tenants.Caller{}, script("#fake step rlimit", sandbox.Limits{}))
		var step *sandbox.StepError
		var run *RunError
		if !errors.As(err, &step) || step.Step != "rlimit" || !errors.As(err, &run) || sandbox.KindOf(err) != sandbox.KindInternal {
			t.Errorf("error %v", err)
		}
		if made, _ := e.Counts(); made != setupTries {
			t.Errorf("%d sandboxes", made)
		}
		rest(t, m, e)
	})
}

func TestKeeper_NeverStartingIsOurFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{Play: func(ctx context.Context, s *fake.Stage) error {
			_, err := s.ReadPlan()
			<-ctx.Done()
			return err
		}})
		begin := time.Now()
		_, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{}))
		if err == nil || !strings.Contains(err.Error(), "did not begin in time") || sandbox.KindOf(err) != sandbox.KindInternal {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took != setupTries*DefaultTiming().Start {
			t.Errorf("took %s", took)
		}
		rest(t, m, e)
	})
}

func TestKeeper_UnreadPlanIsOurFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{Play: func(ctx context.Context, _ *fake.Stage) error {
			<-ctx.Done()
			return nil
		}})
		if _, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{})); sandbox.KindOf(err) != sandbox.KindInternal {
			t.Errorf("error %v", err)
		}
		rest(t, m, e)
	})
}

func TestKeeper_CountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{Play: func(_ context.Context, s *fake.Stage) error {
			s.Spend(400, 7<<20) // setup
			if _, err := s.ReadPlan(); err != nil {
				return err
			}
			if err := s.Started(); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
			s.Spend(430, 9<<20)
			s.KillForMemory()
			return nil
		}})
		res, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{CPUMillis: 100}))
		if err != nil {
			t.Fatal(err)
		}
		u := res.Usage
		if res.Verdict != sandbox.MemoryLimit || u.CPUMillis != 30 || u.MemoryPeakBytes != 9<<20 || u.RunMillis != 50 {
			t.Errorf("%s %+v", res.Verdict, u)
		}
		rest(t, m, e)
	})
}

// TestKeeper_CutFrameIsNoBreach: the kernel may kill a supervisor for memory in
// the middle of a frame.
func TestKeeper_CutFrameIsNoBreach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{Play: func(_ context.Context, s *fake.Stage) error {
			if _, err := s.ReadPlan(); err != nil {
				return err
			}
			if err := s.Started(); err != nil {
				return err
			}
			s.KillForMemory()
			return s.Raw([]byte{0, 0, 1, 0, '{'})
		}})
		res, err := m.Run(t.Context(), tenants.Caller{}, script("", sandbox.Limits{}))
		if err != nil || res.Verdict != sandbox.MemoryLimit {
			t.Errorf("%s, %v", res.Verdict, err)
		}
		rest(t, m, e)
	})
}

// TestKeeper_EngineFailureIsNoVerdict: a sandbox that was lost with its engine
// is our error; one that the program brought down is the program's.
func TestKeeper_EngineFailureIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := manage(t, testConfig(), fake.Config{Failure: sandbox.Errorf(sandbox.KindUnavailable, "run", "zygote", "it has ended")})
		_, err := m.Run(t.Context(), tenants.Caller{}, script("#fake die", sandbox.Limits{}))
		if sandbox.KindOf(err) != sandbox.KindUnavailable {
			t.Errorf("lost: %v", err)
		}
		res, err := m.Run(t.Context(), tenants.Caller{}, script("#fake exit 3", sandbox.Limits{}))
		if err != nil || res.Verdict != sandbox.Exited {
			t.Errorf("left by itself: %s, %v", res.Verdict, err)
		}
		rest(t, m, e)
	})
}
