package main

import (
	"fmt"
	"time"
)

// Names of the measurements, which are keys of a report's samples.
const (
	measureLatency    = "latency"           // one client, one run after the other
	measureAfterDry   = "first_after_dry"   // single runs that no ready sandbox can serve
	measureAfterBurst = "first_after_burst" // the same, each right after a burst that took the ready ones
	measureNumpy      = "numpy"             // one client, a solution that imports numpy
)

// throughputName names the measurement with that many clients at once.
func throughputName(clients int) string { return fmt.Sprintf("throughput_%d", clients) }

// sourceName names the measurement with a solution of that many bytes.
func sourceName(size int) string { return fmt.Sprintf("source_%d", size) }

// outputName names the measurement with that much output.
func outputName(size int) string { return fmt.Sprintf("output_%d", size) }

// benchClients lists the numbers of clients at once beside one.
func benchClients(full bool) []int {
	if full {
		return []int{4, 16, 64, 256}
	}
	return []int{4, 16}
}

// benchSizes lists what --full measures of sources and of outputs.
func benchSizes() (sources, outputs []int) {
	return []int{1 << 10, 64 << 10, 1 << 20}, []int{0, 64 << 10, 1 << 20}
}

// measurement is one thing that each round measures on both sides.
type measurement struct {
	name     string
	exercise exercise
	load     load
	single   singles // instead of load
}

// singles are runs that alternate one by one.
type singles struct {
	count int
	burst bool
}

// measurements lists what a round does, in order.
func (c *benchConfig) measurements() []measurement {
	one := load{clients: 1, span: c.Span}
	list := []measurement{{name: measureLatency, exercise: baseExercise(), load: one}}
	for _, n := range benchClients(c.Full) {
		list = append(list, measurement{name: throughputName(n), exercise: baseExercise(), load: load{clients: n, span: c.Span}})
	}
	list = append(list,
		measurement{name: measureAfterDry, exercise: baseExercise(), single: singles{count: c.share(100*time.Millisecond, 20)}},
		measurement{name: measureAfterBurst, exercise: baseExercise(), single: singles{count: c.share(250*time.Millisecond, 8), burst: true}},
		measurement{name: measureNumpy, exercise: numpyExercise(), load: one})
	if !c.Full {
		return list
	}
	half := load{clients: 1, span: c.Span / 2}
	sources, outputs := benchSizes()
	for _, n := range sources {
		list = append(list, measurement{name: sourceName(n), exercise: ofSource(n), load: half})
	}
	for _, n := range outputs {
		list = append(list, measurement{name: outputName(n), exercise: ofOutput(n), load: half})
	}
	return list
}

// share is how many single runs fit a round: one for each so much of the span.
func (c *benchConfig) share(each time.Duration, most int) int {
	return min(max(int(c.Span/each), 1), most)
}
