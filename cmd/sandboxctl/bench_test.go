package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

// stubDaemon answers as a daemon that has one engine and is right, but for what
// a test makes wrong.
type stubDaemon struct {
	verdict sandbox.Verdict
	layer   sandbox.LayerState
	refuse  int64 // so many first requests get 429
	asked   atomic.Int64
	metrics string
}

func (d *stubDaemon) start(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench") //nolint:usetesting // short: a socket's path has at most 104 bytes on some systems
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	answer("/v1/info", `{"version": "v9", "engines": [{"name": "native"}], "limits": {"workspace_bytes": 65536}}`)
	answer("/v1/doctor", `{"engines": [{"engine": "native", "limits": {"workspace_bytes": "enforced"}, "usable": true, "allowed": true, "required": ["seccomp"],
		"layers": [{"layer": "seccomp", "state": "held"}, {"layer": "landlock", "state": "missing"}]}]}`)
	answer("/metrics", d.metrics)
	mux.HandleFunc("/v1/runs", d.run)
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return socket
}

func (d *stubDaemon) run(w http.ResponseWriter, r *http.Request) {
	var spec sandbox.Spec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	if d.asked.Add(1) <= d.refuse {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	fmt.Fprintf(w, `{"verdict": %q, "passed_count": 3, "engine": %q, "exception_message": "\u001b[31m",
		"layers": [{"layer": "seccomp", "state": %q}], "usage": {"ready": %t}}`,
		d.verdict, spec.Engine, d.layer, spec.Limits.WorkspaceBytes == 0)
}

// runBenchCommand runs a short bench against d.
func runBenchCommand(t *testing.T, d *stubDaemon, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs, func(string) string { return "" })
	args = append([]string{"bench", "--socket", d.start(t), "--rounds", "2", "--span", "20ms"}, args...)
	code = execute(t.Context(), a, args)
	return code, out.String(), errs.String()
}

func TestBench_ShowsAndWritesWhatItMeasured(t *testing.T) {
	d := &stubDaemon{verdict: sandbox.Passed, layer: sandbox.LayerHeld, refuse: 3, metrics: "process_resident_memory_bytes 1.048576e+06\n"}
	file := filepath.Join(t.TempDir(), "bench.json")
	code, stdout, stderr := runBenchCommand(t, d, "--json", file)
	if code != exitPassed {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{
		"sandboxd v9, engine native, 1 of 23 layers held\n", "medians of 2 alternating rounds, 20ms a side\n",
		"MEASURED", "latency p50 ", "≤ 0.10", "throughput, 16 clients ", "≥ 6", "first run with no ready sandbox ",
		"daemon, RSS", "1.0 MiB",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("colours without a terminal")
	}
	checkReport(t, file)
}

func checkReport(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for part, keys := range map[string][]string{
		"ratios":  {"latency_p50", "latency_p99", "throughput_16", "first_after_dry", "numpy_p50"},
		"samples": {"latency", "throughput_4", "throughput_16", "first_after_dry", "first_after_burst"},
		"machine": {"cpus", "kernel", "python", "go"},
		"daemon":  {"version", "engine", "layers_held", "ready_sandbox_pss_bytes", "rss_bytes"},
		"options": {"rounds", "span_ms", "full", "python"},
	} {
		for _, key := range keys {
			if _, ok := report[part][key]; !ok {
				t.Errorf("%s.%s is missing", part, key)
			}
		}
	}
	var rounds benchSeries
	if err := json.Unmarshal(report["samples"]["latency"], &rounds); err != nil {
		t.Fatal(err)
	}
	if len(rounds) != 2 || rounds[0].First != sideOurs || rounds[1].First != sidePlain || rounds[0].Plain.Runs == 0 {
		t.Errorf("rounds do not alternate: %+v", rounds)
	}
	if ready := rounds[0].Ours.Ready; ready == nil || *ready != rounds[0].Ours.Runs {
		t.Errorf("ready runs: %v of %d", ready, rounds[0].Ours.Runs)
	}
	// Neither metric of CPU is there.
	if rounds[0].Ours.CPU != nil || string(report["daemon"]["ready_sandbox_pss_bytes"]) != "null" {
		t.Error("what was not measured is not null")
	}
}

func TestShowBench_NamesMissedTargets(t *testing.T) {
	half, seven := 0.5, 7.0
	report := benchReport{Ratios: benchRatios{LatencyP50: &half, Throughput16: &seven}}
	for check, want := range map[bool]string{
		true:  "✗ missed: latency_p50 0.500 (target ≤ 0.10), latency_p99 - (target ≤ 0.35), first_after_dry",
		false: "\ntargets not met: latency_p50 0.500",
	} {
		var out bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &out, func(string) string { return "" })
		if err := a.showBench(&report, check); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestBench_WrongResultsEndIt(t *testing.T) {
	for name, c := range map[string]struct {
		daemon *stubDaemon
		says   string
	}{
		"verdict": {&stubDaemon{verdict: sandbox.Failed, layer: sandbox.LayerHeld}, `verdict failed instead of passed: : \u001b[31m`},
		"layer":   {&stubDaemon{verdict: sandbox.Passed, layer: sandbox.LayerMissing}, "layer seccomp was not held"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runBenchCommand(t, c.daemon)
			if code != exitNotPassed || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, want 1 and %q\n%s%s", code, c.says, stdout, stderr)
			}
		})
	}
}
