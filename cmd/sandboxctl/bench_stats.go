package main

import (
	"math"
	"slices"
)

// percentile takes q (0 to 1) of sorted values, between two neighbours in
// proportion; NaN of none.
func percentile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// median of values in any order; nil of none.
func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	m := percentile(slices.Sorted(slices.Values(values)), 0.5)
	return &m
}

// figure picks one number of a side; nil where it was not measured.
type figure func(*benchSide) *float64

// p50 picks the median latency.
func p50(s *benchSide) *float64 { return &s.P50 }

// p90 picks the latency that nine of ten runs keep.
func p90(s *benchSide) *float64 { return &s.P90 }

// p99 picks the latency that 99 of 100 runs keep.
func p99(s *benchSide) *float64 { return &s.P99 }

// perSecond picks the throughput.
func perSecond(s *benchSide) *float64 { return &s.PerSecond }

// cpuPerRun picks the CPU time of a run.
func cpuPerRun(s *benchSide) *float64 { return s.CPU }

// benchSeries is one measurement's rounds.
type benchSeries []benchRound

// ours is the median over the rounds of one figure of the daemon's side.
func (s benchSeries) ours(f figure) *float64 {
	return s.median(func(r *benchRound) *float64 { return f(&r.Ours.benchSide) })
}

// plain is the same of plain.
func (s benchSeries) plain(f figure) *float64 {
	return s.median(func(r *benchRound) *float64 { return f(&r.Plain) })
}

// ratio is the median of the rounds' own ratios, ours over plain: both sides of
// one are measured within seconds, so the machine's moods cancel out.
func (s benchSeries) ratio(f figure) *float64 {
	return s.median(func(r *benchRound) *float64 {
		ours, plain := f(&r.Ours.benchSide), f(&r.Plain)
		if ours == nil || plain == nil || *plain == 0 {
			return nil
		}
		ratio := *ours / *plain
		return &ratio
	})
}

// of is the median over the rounds of what only the daemon's side has.
func (s benchSeries) of(f func(*benchOurs) *float64) *float64 {
	return s.median(func(r *benchRound) *float64 { return f(&r.Ours) })
}

// refused counts the requests that a full daemon sent away.
func (s benchSeries) refused() int {
	n := 0
	for _, r := range s {
		n += r.Ours.Refused
	}
	return n
}

// median is of the rounds that have a value.
func (s benchSeries) median(pick func(*benchRound) *float64) *float64 {
	var values []float64
	for i := range s {
		if v := pick(&s[i]); v != nil && !math.IsNaN(*v) {
			values = append(values, *v)
		}
	}
	return median(values)
}
