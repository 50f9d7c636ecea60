package docker_test

import (
	"net/http"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// BenchmarkEngine_Cold is a run that makes its container, until its end is known;
// BenchmarkEngine_Warm one that finds it ready. Removal is not counted. Each is
// measured in turns with what it takes the place of, `docker run`, whose time is
// reported beside it, so that both meet the same machine.
func BenchmarkEngine_Cold(b *testing.B) { benchmark(b, 0) }

func BenchmarkEngine_Warm(b *testing.B) { benchmark(b, 2) }

func benchmark(b *testing.B, ready int) {
	client := testenv.Binary(b, "docker")
	on := theEngine(b)
	e := newEngine(b, docker.Config{Ready: ready})
	l := sandbox.DefaultLimits()
	if _, err := runOnce(b.Context(), e, plan(l), "pass"); err != nil {
		b.Fatal(err)
	}
	text := "pass"
	var ours, plain []time.Duration
	for b.Loop() {
		b.StopTimer()
		began := time.Now()
		out, err := exec.CommandContext(b.Context(), client, "--host", "unix://"+on.Socket, "run", "--rm", "--network=none",
			imageOf(b, on), "/usr/bin/python3", "-c", text).CombinedOutput()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		plain = append(plain, time.Since(began))
		for e.Stats().Ready < ready { // and nobody is at work on others
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
		began = time.Now()
		sb, err := e.Create(b.Context(), plan(l))
		if err != nil {
			b.Fatal(err)
		}
		if _, err = sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run(); err != nil {
			b.Fatal(err)
		}
		if err := sb.Kill(); err != nil {
			b.Fatal(err)
		}
		if _, err := sb.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		b.StopTimer()
		if err := sb.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(median(ours).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(median(plain).Microseconds())/1000, "docker-run-p50-ms")
	b.ReportMetric(float64(median(ours))/float64(median(plain)), "of-docker-run")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// imageOf is the one image that an Engine has.
func imageOf(t testing.TB, on *enginetest.DockerEngine) string {
	t.Helper()
	var list []struct{ ID string }
	if _, err := on.Ask(t.Context(), http.MethodGet, "/images/json", nil, nil, &list); err != nil || len(list) == 0 {
		t.Fatalf("the Engine has no image: %v", err)
	}
	return list[0].ID
}
