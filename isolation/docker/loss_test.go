package docker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// kept is what a keeper would answer for one run.
type kept struct {
	verdict sandbox.Verdict
	err     error
}

// keep does what a keeper does: a failure before anything untrusted ran is tried
// once more, and what the engine says of its failures goes before a verdict.
func keep(ctx context.Context, e *docker.Engine, text string) kept {
	var err error
	for range 2 {
		var sb isolation.Sandbox
		if sb, err = e.Create(ctx, plan(sandbox.DefaultLimits())); err != nil {
			continue
		}
		var k kept
		if k, err = follow(ctx, sb, text); err == nil {
			return k
		}
	}
	return kept{err: err}
}

func follow(ctx context.Context, sb isolation.Sandbox, text string) (kept, error) {
	l := sandbox.DefaultLimits()
	defer func() { _ = sb.Destroy(ctx) }() // what is left is looked for at the end
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
	if err != nil {
		return kept{}, err
	}
	_ = sb.Kill()
	facts, err := sb.Wait(ctx)
	if err != nil {
		return kept{err: err}, nil
	}
	end.Outcome.OOMKills = facts.OOMKills
	if end.Outcome.Lost || end.Outcome.Signal == 9 {
		if err := sb.Failure(ctx); err != nil {
			return kept{err: err}, nil
		}
	}
	verdict, _ := sandbox.VerdictOf(sandbox.ModeScript, l, end.Outcome, end.Report)
	return kept{verdict: verdict}, nil
}

// TestEngine_SurvivesItsEngine: the Docker Engine is killed amid many runs and
// started again. Each run has its own verdict or is unavailable, nothing is left,
// and the service is back by itself.
func TestEngine_SurvivesItsEngine(t *testing.T) {
	for name, end := range map[string]func(*enginetest.DockerEngine) error{
		"killed":    (*enginetest.DockerEngine).Kill,
		"restarted": (*enginetest.DockerEngine).Halt,
	} {
		t.Run(name, func(t *testing.T) { survive(t, end) })
	}
}

func survive(t *testing.T, end func(*enginetest.DockerEngine) error) {
	const runs, atOnce = 50, 10
	on := enginetest.StartDockerEngine(t, false)
	e := newEngine(t, docker.Config{Host: "unix://" + on.Socket, Ready: 4})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := runOnce(ctx, e, plan(sandbox.DefaultLimits()), "pass"); err != nil {
		t.Fatal(err)
	}
	texts := map[sandbox.Verdict]string{
		sandbox.Passed: "import time; time.sleep(0.4); print('x')",
		sandbox.Exited: "import time; time.sleep(0.2); raise SystemExit(3)",
		sandbox.Raised: "import time; time.sleep(0.3); raise ValueError",
	}
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var mu sync.Mutex
	verdicts, unavailable := 0, 0
	for i := range runs {
		slots <- struct{}{}
		if i == runs/2 {
			if err := end(on); err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(time.Second)
				if err := on.Start(); err != nil {
					t.Error(err)
				}
			}()
		}
		want := []sandbox.Verdict{sandbox.Passed, sandbox.Exited, sandbox.Raised}[i%3]
		all.Go(func() {
			defer func() { <-slots }()
			got := keep(ctx, e, texts[want])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case got.err == nil && got.verdict == want:
				verdicts++
			case sandbox.KindOf(got.err) == sandbox.KindUnavailable:
				unavailable++
			default:
				t.Errorf("run %d: verdict %s, want %s or unavailable; %v", i, got.verdict, want, got.err)
			}
		})
	}
	all.Wait()
	t.Logf("%d verdicts, %d unavailable", verdicts, unavailable)
	if verdicts == 0 || unavailable == 0 {
		t.Errorf("%d verdicts and %d unavailable runs prove nothing", verdicts, unavailable)
	}
	awaitService(ctx, t, e)
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	if left := on.Containers(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// awaitService waits until runs pass again and nothing of the time before is left
// to be removed.
func awaitService(ctx context.Context, t *testing.T, e *docker.Engine) {
	t.Helper()
	for {
		end, err := runOnce(ctx, e, plan(sandbox.DefaultLimits()), "print('well')")
		if err == nil && end.Stdout.Text() == "well\n" {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("no service: %v", errors.Join(err, ctx.Err()))
		}
		time.Sleep(50 * time.Millisecond)
	}
	for e.Healing() {
		if ctx.Err() != nil {
			t.Fatal("leftovers are not removed")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
