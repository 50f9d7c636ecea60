package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/isolation"
)

// probeTime bounds reaping and probing one engine.
const probeTime = 2 * time.Minute

// An engine that cannot be used is probed again after firstPause, and then less and
// less often: what it needs may have been started after the daemon, or mended.
const (
	firstPause = 2 * time.Second
	lastPause  = 2 * time.Minute
)

// examine reaps and probes every engine.
func (d *Daemon) examine(ctx context.Context) []runs.Engine {
	engines := make([]runs.Engine, 0, len(d.deps.Engines))
	for _, e := range d.deps.Engines {
		support := d.examineOne(ctx, e)
		d.tell(ctx, support)
		engines = append(engines, runs.Engine{Engine: e, Support: support})
	}
	return engines
}

func (d *Daemon) examineOne(ctx context.Context, e isolation.Engine) isolation.Support {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	log := d.deps.Logger.With(slog.String("engine", e.Name()))
	if err := e.Reap(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelError, "reap leftovers", slog.Any("err", err))
	}
	support, err := e.Probe(ctx)
	if err != nil {
		log.LogAttrs(ctx, slog.LevelError, "probe engine", slog.Any("err", err))
		support.Usable = false
		if support.Reason == "" {
			support.Reason = "its probe failed: " + err.Error()
		}
	}
	support.Engine = e.Name()
	return support
}

func (d *Daemon) tell(ctx context.Context, s isolation.Support) {
	d.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "engine probed",
		slog.String("engine", s.Engine), slog.Bool("usable", s.Usable), slog.String("reason", s.Reason))
}

// probeAgain probes the engines that cannot be used, and may be, until ctx ends.
// None of them has a sandbox that is not the probe's, so reaping takes nothing from
// anybody.
func (d *Daemon) probeAgain(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		unusable := d.runs.Unusable()
		if len(unusable) == 0 {
			return // one that was usable heals by itself
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for _, e := range unusable {
			support := d.examineOne(ctx, e.Engine)
			if ctx.Err() != nil {
				return
			}
			if support.Usable || support.Reason != e.Support.Reason {
				d.tell(ctx, support)
			}
			d.runs.Renew(support)
		}
	}
}
