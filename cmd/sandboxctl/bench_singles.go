package main

import (
	"context"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// oddStep is how much odd requests differ in workspace size: whole pages.
const oddStep = 4096

// oddRequest is the exercise with a limit that nobody else asks for, so that no
// sandbox made ahead of need can serve it: such a run always pays for its
// sandbox, whatever the pool holds by then. An engine that does not enforce this one
// makes nothing ahead of need.
func (r *benchRunner) oddRequest(e exercise) ([]byte, error) {
	if r.Workspace == 0 {
		return e.wire(r.Engine, sandbox.Limits{})
	}
	r.odd++
	return e.wire(r.Engine, sandbox.Limits{WorkspaceBytes: r.Workspace + r.odd*oddStep})
}

// alternate measures single runs with no ready sandbox, one of plain after each.
func (r *benchRunner) alternate(ctx context.Context, m measurement, round *benchRound) error {
	one, err := r.client(ctx)
	if err != nil {
		return err
	}
	defer one.conn.close()
	begin := time.Now()
	var plain, ours []float64
	for range m.single.count {
		if m.single.burst {
			if err := r.burst(ctx, m.exercise); err != nil {
				return err
			}
		}
		kept, latency, err := r.odds(one, m.exercise)
		if err != nil {
			return err
		}
		if kept {
			ours = append(ours, latency)
		} else {
			round.Ours.Discarded++
		}
		side, err := r.plain.round(m.exercise, load{clients: 1, runs: 1})
		if err != nil {
			return err
		}
		plain = append(plain, side.P50)
	}
	elapsed := time.Since(begin) // of both
	round.Ours.benchSide, round.Plain = sideOf(ours, elapsed), sideOf(plain, elapsed)
	round.Ours.PerSecond, round.Plain.PerSecond = 0, 0 // says nothing here
	round.Ours.Refused = one.refused
	return nil
}

// odds makes one run that no ready sandbox can serve. Should the daemon say that
// one did, the sample is not kept.
func (r *benchRunner) odds(one *benchClient, e exercise) (kept bool, latency float64, err error) {
	request, err := r.oddRequest(e)
	if err != nil {
		return false, 0, err
	}
	res, took, err := one.run(request)
	return err == nil && (res.Usage.Ready == nil || !*res.Usage.Ready), millis(took), err
}

// burst takes every ready sandbox at once, and some more.
func (r *benchRunner) burst(ctx context.Context, e exercise) error {
	m, err := r.scrape(ctx)
	if err != nil {
		return err
	}
	n := int(*or(m.ofEngine(metricReady, r.Engine), 16)) + 8
	request, err := e.wire(r.Engine, sandbox.Limits{})
	if err != nil {
		return err
	}
	_, err = r.drive(ctx, request, load{clients: n, runs: n})
	return err
}
