package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile_LiesBetweenNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		sorted []float64
		q      float64
		want   float64
	}{
		"only value":        {[]float64{7}, 0.99, 7},
		"middle of odd":     {[]float64{1, 2, 9}, 0.5, 2},
		"middle of even":    {[]float64{1, 2, 4, 9}, 0.5, 3},
		"first":             {[]float64{1, 2}, 0, 1},
		"last":              {[]float64{1, 2}, 1, 2},
		"nine tenths of 11": {[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9},
		"99 hundredths":     {[]float64{0, 100}, 0.99, 99},
	} {
		if got := percentile(c.sorted, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %g, want %g", name, got, c.want)
		}
	}
	if got := percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %g, want no number", got)
	}
}

func TestSideOf_SumsUp(t *testing.T) {
	got := sideOf([]float64{3, 1, 2}, 500*time.Millisecond)
	want := benchSide{Runs: 3, Seconds: 0.5, PerSecond: 6, P50: 2, P90: 2.8, P99: 2.98, Max: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := sideOf(nil, time.Second); got.P50 != 0 || got.PerSecond != 0 {
		t.Errorf("of no runs: %+v", got)
	}
}

// twoSided is a round with these medians.
func twoSided(ours, plain float64) benchRound {
	return benchRound{Ours: benchOurs{benchSide: benchSide{P50: ours}}, Plain: benchSide{P50: plain}}
}

// The machine is three times as slow in the second round; a ratio of medians
// would compare rounds with each other.
func TestRatio_IsTheMedianOfTheRoundsOwn(t *testing.T) {
	s := benchSeries{twoSided(1, 10), twoSided(6, 30), twoSided(2, 8)}
	if got := s.ratio(p50); *got != 0.2 {
		t.Errorf("ratio %g, want 0.2", *got)
	}
	if ours, plain := *s.ours(p50), *s.plain(p50); ours != 2 || plain != 10 {
		t.Errorf("medians %g and %g, want 2 and 10", ours, plain)
	}
}

func TestRatio_LeavesOutWhatWasNotMeasured(t *testing.T) {
	if got := (benchSeries{}).ratio(p50); got != nil {
		t.Errorf("of no rounds: %g", *got)
	}
	one := 1.0
	s := benchSeries{twoSided(1, 0), {Plain: benchSide{CPU: &one}}}
	if got := s.ratio(p50); got != nil {
		t.Errorf("over nothing: %g", *got)
	}
	if got := s.ratio(cpuPerRun); got != nil {
		t.Errorf("of what one side lacks: %g", *got)
	}
}

func TestTarget_NotMeasuredIsNotMet(t *testing.T) {
	low, high := 0.1, 6.0
	met := benchRatios{LatencyP50: &low, LatencyP99: &low, Throughput16: &high, AfterDry: &low, NumpyP50: &low}
	var missed []string
	for _, target := range met.targets() {
		if !target.met() {
			missed = append(missed, target.name)
		}
	}
	if diff := cmp.Diff([]string{"numpy_p50"}, missed); diff != "" {
		t.Error(diff)
	}
	met.NumpyP50 = nil
	if allMet(met.targets()) {
		t.Error("a target that was not measured is met")
	}
}

func TestMetrics_AreFoundByNameAndEngine(t *testing.T) {
	m := parseMetrics([]byte(`# HELP process_cpu_seconds_total text 1
process_cpu_seconds_total 1.5
sandboxd_engine_cpu_seconds_total{engine="native",part="zygote"} 2
sandboxd_engine_cpu_seconds_total{engine="native",part="run"} 3
sandboxd_engine_cpu_seconds_total{engine="process"} 40
sandboxd_engine_cpu_seconds_total_other{engine="native"} 400
broken
`))
	if got := m.of(metricDaemonCPU); got == nil || *got != 1.5 {
		t.Errorf("daemon: %v", got)
	}
	if got := m.ofEngine(metricEngineCPU, "native"); got == nil || *got != 5 {
		t.Errorf("engine: %v", got)
	}
	if m.of(metricDaemonRSS) != nil || m.ofEngine(metricReadyMemory, "native") != nil || daemonMetrics(nil).of("x") != nil {
		t.Error("a metric that is missing has a value")
	}
}

func TestCharge_MissingCPUStaysMissing(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	o := benchOurs{benchSide: benchSide{Runs: 10}}
	o.charge(cpuUsage{daemon: v(1), engine: v(2), client: v(3)}, cpuUsage{daemon: v(1.01), engine: v(2.02), client: v(3)})
	if math.Abs(*o.CPU-3) > 1e-9 || *o.ClientCPU != 0 {
		t.Errorf("cpu %g, client %g; want 3 and 0", *o.CPU, *o.ClientCPU)
	}
	o.charge(cpuUsage{daemon: v(1)}, cpuUsage{daemon: v(2), engine: v(2)})
	if o.CPU != nil || o.EngineCPU != nil {
		t.Error("a sum with a missing part has a value")
	}
}

func TestExercises_HaveTheirSizeAndAssertions(t *testing.T) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		e := ofSource(size)
		if len(e.solution) != size || !strings.HasSuffix(e.solution, "\n") {
			t.Errorf("source of %d bytes has %d", size, len(e.solution))
		}
	}
	for _, tests := range []string{benchTests, numpyTests} {
		if got := strings.Count(tests, "assert "); got != benchAssertions {
			t.Errorf("%d assertions, want %d", got, benchAssertions)
		}
	}
	for _, text := range []string{benchSolution, numpySolution} {
		if got := strings.Count(text, "\n"); got != 10 {
			t.Errorf("a solution of %d lines, want 10", got)
		}
	}
}

func TestInterpreterPath_FallsBackToTheSystems(t *testing.T) {
	for text, want := range map[string]string{
		"Python 3.11.2 at " + t.TempDir():  "",
		"Python 3.11.2 at /nowhere/python": systemPython,
		"Python 3.11.2 (scripted)":         systemPython,
		"":                                 systemPython,
	} {
		if want == "" {
			_, want, _ = strings.Cut(text, " at ")
		}
		if got := interpreterPath(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
