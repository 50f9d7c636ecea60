package main

import (
	"slices"
	"time"
)

// The two sides of a round.
const (
	sideOurs  = "ours"
	sidePlain = "plain"
)

// benchSide is what one side did in one round. Latencies are milliseconds as its
// caller sees them.
type benchSide struct {
	Runs      int      `json:"runs"`
	Seconds   float64  `json:"seconds"`
	PerSecond float64  `json:"runs_per_second"`
	P50       float64  `json:"p50_ms"`
	P90       float64  `json:"p90_ms"`
	P99       float64  `json:"p99_ms"`
	Max       float64  `json:"max_ms"`
	CPU       *float64 `json:"cpu_ms_per_run"` // all of the side's own; null when not measured
}

// benchOurs is the daemon's side, with what only it has.
type benchOurs struct {
	benchSide
	Refused   int      `json:"refused"`               // answers of a full daemon, not in runs
	Ready     *int     `json:"ready_runs"`            // runs that found a ready sandbox; null when the daemon does not say
	Discarded int      `json:"discarded"`             // runs left out because they had found one and were to have none
	DaemonCPU *float64 `json:"daemon_cpu_ms_per_run"` // in cpu_ms_per_run
	EngineCPU *float64 `json:"engine_cpu_ms_per_run"` // in cpu_ms_per_run
	ClientCPU *float64 `json:"client_cpu_ms_per_run"` // this program, not in cpu_ms_per_run
}

// benchRound is one measurement of both sides, one right after the other.
type benchRound struct {
	Number int       `json:"round"`
	First  string    `json:"first"` // the side that began
	Ours   benchOurs `json:"ours"`
	Plain  benchSide `json:"plain"`
}

// sideOf sums up latencies; it sorts them.
func sideOf(latencies []float64, elapsed time.Duration) benchSide {
	slices.Sort(latencies)
	s := benchSide{Runs: len(latencies), Seconds: elapsed.Seconds()}
	if s.Runs == 0 {
		return s
	}
	s.P50, s.P90, s.P99 = percentile(latencies, 0.5), percentile(latencies, 0.9), percentile(latencies, 0.99)
	s.Max = latencies[len(latencies)-1]
	if elapsed > 0 {
		s.PerSecond = float64(s.Runs) / s.Seconds
	}
	return s
}

// perRun shares seconds of CPU among runs, in milliseconds.
func perRun(seconds *float64, runs int) *float64 {
	if seconds == nil || runs == 0 {
		return nil
	}
	ms := *seconds * 1000 / float64(runs)
	return &ms
}

// sum adds what was measured; nil when any part was not.
func sum(parts ...*float64) *float64 {
	var total float64
	for _, p := range parts {
		if p == nil {
			return nil
		}
		total += *p
	}
	return &total
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
