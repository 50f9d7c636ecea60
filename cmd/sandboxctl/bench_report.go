package main

import (
	"os"
	"runtime"
	"strings"
	"time"
)

// benchReport is what --json writes.
type benchReport struct {
	Ratios  benchRatios            `json:"ratios"`
	Samples map[string]benchSeries `json:"samples"`
	Skipped map[string]string      `json:"skipped"`
	Machine benchMachine           `json:"machine"`
	Daemon  benchDaemon            `json:"daemon"`
	Options benchSettings          `json:"options"`
}

// benchRatios are ours over plain, medians of the rounds' own; null when not measured.
type benchRatios struct {
	LatencyP50   *float64 `json:"latency_p50"`
	LatencyP99   *float64 `json:"latency_p99"`
	Throughput16 *float64 `json:"throughput_16"`
	AfterDry     *float64 `json:"first_after_dry"`
	NumpyP50     *float64 `json:"numpy_p50"`
}

// benchMachine is where it was measured.
type benchMachine struct {
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Python string `json:"python"`
	Go     string `json:"go"`
}

// benchDaemon is what was measured.
type benchDaemon struct {
	Version     string   `json:"version"`
	Engine      string   `json:"engine"`
	Interpreter string   `json:"interpreter"`
	LayersHeld  int      `json:"layers_held"`
	ReadyPSS    *float64 `json:"ready_sandbox_pss_bytes"`
	RSS         *float64 `json:"rss_bytes"`
}

// benchSettings are how it was measured.
type benchSettings struct {
	Rounds int           `json:"rounds"`
	Span   time.Duration `json:"-"`
	SpanMS int64         `json:"span_ms"`
	Full   bool          `json:"full"`
	Python string        `json:"python"`
}

// newBenchReport puts an outcome together with what it is about.
func newBenchReport(c benchConfig, o *benchOutcome, d benchDaemon) *benchReport {
	d.ReadyPSS, d.RSS = o.Ready, o.RSS
	return &benchReport{
		Ratios: ratiosOf(o.Samples), Samples: o.Samples, Skipped: o.Skipped,
		Machine: benchMachine{CPUs: runtime.NumCPU(), Kernel: kernel(), Python: o.Python, Go: runtime.Version()},
		Daemon:  d,
		Options: benchSettings{Rounds: c.Rounds, Span: c.Span, SpanMS: c.Span.Milliseconds(), Full: c.Full, Python: c.Python},
	}
}

func ratiosOf(samples map[string]benchSeries) benchRatios {
	return benchRatios{
		LatencyP50:   samples[measureLatency].ratio(p50),
		LatencyP99:   samples[measureLatency].ratio(p99),
		Throughput16: samples[throughputName(16)].ratio(perSecond),
		AfterDry:     samples[measureAfterDry].ratio(p50),
		NumpyP50:     samples[measureNumpy].ratio(p50),
	}
}

// benchTarget is a bound that a ratio has to keep.
type benchTarget struct {
	name    string
	bound   float64
	atLeast bool
	value   *float64 // nil: not measured
}

// met tells whether the ratio keeps the bound. What was not measured does not.
func (t benchTarget) met() bool {
	if t.value == nil {
		return false
	}
	if t.atLeast {
		return *t.value >= t.bound
	}
	return *t.value <= t.bound
}

// targets lists the bounds with what was measured.
func (r benchRatios) targets() []benchTarget {
	return []benchTarget{
		{name: "latency_p50", bound: 0.10, value: r.LatencyP50},
		{name: "latency_p99", bound: 0.35, value: r.LatencyP99},
		{name: "throughput_16", bound: 6, atLeast: true, value: r.Throughput16},
		{name: "first_after_dry", bound: 0.5, value: r.AfterDry},
		{name: "numpy_p50", bound: 0.05, value: r.NumpyP50},
	}
}

// kernel names the running kernel, or the system where there is no /proc.
func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(text))
}
