package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// benchConfig says what is measured, and against whom.
type benchConfig struct {
	Socket    string
	Engine    string
	Required  []sandbox.Layer // that every result must show as held
	Python    string          // plain's interpreter
	Workspace int64           // default of limits.workspace_bytes; 0 when the engine does not enforce it
	Rounds    int
	Span      time.Duration // of each side of each measurement
	Full      bool
	Progress  func(text string)
}

// benchOutcome is what a bench found.
type benchOutcome struct {
	Samples map[string]benchSeries
	Skipped map[string]string // measurement → why
	Python  string            // plain's version
	Ready   *float64          // memory of an idle ready sandbox, bytes
	RSS     *float64          // of the daemon, bytes
}

// benchSettle is how long the machine is left alone between the sides, so that what
// one still does in the background is not charged to the other.
const benchSettle = 150 * time.Millisecond

// benchRunner is one bench under way. It must never make the comparison kinder to
// the daemon than to plain: both get the same texts, time and number of clients;
// plain's own start and its cleanup of files are outside its clock.
type benchRunner struct {
	benchConfig
	benchCaller
	plain *plainRunner
	out   *benchOutcome
	odd   int64 // so that no two odd requests are alike
}

// runBench measures. A *wrongRunError says that a run did not end as every run
// must, other errors that nothing could be measured.
func runBench(ctx context.Context, c benchConfig) (out *benchOutcome, err error) {
	p, err := startPlain(ctx, c.Python)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r := &benchRunner{
		benchConfig: c, plain: p, benchCaller: benchCaller{c.Socket, c.Engine, c.Required},
		out: &benchOutcome{Samples: map[string]benchSeries{}, Skipped: map[string]string{}, Python: p.hello.Python},
	}
	list, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	for number := 1; number <= c.Rounds; number++ {
		for _, m := range list {
			c.Progress(fmt.Sprintf("round %d of %d: %s", number, c.Rounds, m.name))
			round, err := r.round(ctx, m, number)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", number, m.name, err)
			}
			r.out.Samples[m.name] = append(r.out.Samples[m.name], round)
		}
	}
	return r.out, r.memory(ctx)
}

// round measures both sides; which one begins changes from round to round.
func (r *benchRunner) round(ctx context.Context, m measurement, number int) (benchRound, error) {
	round := benchRound{Number: number, First: sideOurs}
	if m.single.count > 0 {
		return round, r.alternate(ctx, m, &round)
	}
	ours := func() (err error) {
		round.Ours, err = r.ours(ctx, m)
		return err
	}
	plain := func() (err error) {
		round.Plain, err = r.plain.round(m.exercise, m.load)
		return err
	}
	sides := []func() error{ours, plain}
	if number%2 == 0 {
		round.First, sides[0], sides[1] = sidePlain, plain, ours
	}
	for _, side := range sides {
		if err := side(); err != nil {
			return round, err
		}
		if err := pause(ctx, benchSettle); err != nil {
			return round, err
		}
	}
	return round, nil
}

// ours drives the daemon. Its CPU is counted until it has settled, so that what
// it does after an answer is in.
func (r *benchRunner) ours(ctx context.Context, m measurement) (benchOurs, error) {
	request, err := m.exercise.wire(r.Engine, sandbox.Limits{})
	if err != nil {
		return benchOurs{}, err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return benchOurs{}, err
	}
	o, err := r.drive(ctx, request, m.load)
	if err != nil {
		return o, err
	}
	if err := pause(ctx, benchSettle); err != nil {
		return o, err
	}
	after, err := r.usage(ctx)
	o.charge(before, after)
	return o, err
}

// memory reads what the idle daemon and its ready sandboxes take.
func (r *benchRunner) memory(ctx context.Context) error {
	if err := pause(ctx, 4*benchSettle); err != nil {
		return err
	}
	m, err := r.scrape(ctx)
	r.out.Ready, r.out.RSS = m.ofEngine(metricReadyMemory, r.Engine), m.of(metricDaemonRSS)
	return err
}
