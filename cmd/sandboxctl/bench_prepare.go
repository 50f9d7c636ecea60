package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

const (
	warmMost  = 5 * time.Second       // to wait for ready sandboxes
	warmPause = 10 * time.Millisecond // between runs, for the daemon to make them
	warmReady = 8                     // ready ones in a row that are enough
)

// prepare runs each exercise before it is measured, and leaves out what cannot be.
func (r *benchRunner) prepare(ctx context.Context) ([]measurement, error) {
	list := r.measurements()
	var kept []measurement
	for _, m := range list {
		if m.name == measureNumpy {
			why, err := r.lacksNumpy(ctx)
			if err != nil {
				return nil, err
			}
			if why != "" {
				r.out.Skipped[measureNumpy] = why
				continue
			}
		}
		kept = append(kept, m)
	}
	for _, m := range kept {
		if m.name != measureLatency && m.name != measureNumpy {
			continue // the same sandboxes as for latency
		}
		r.Progress("warm up: " + m.name)
		if err := r.warm(ctx, m.exercise); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// lacksNumpy tells on which side numpy is missing, by asking both.
func (r *benchRunner) lacksNumpy(ctx context.Context) (why string, err error) {
	if !r.plain.hello.Numpy {
		return "no numpy in " + r.plain.hello.Executable, nil
	}
	one, err := r.client(ctx)
	if err != nil {
		return "", err
	}
	defer one.conn.close()
	request, err := numpyExercise().wire(r.Engine, sandbox.Limits{})
	if err != nil {
		return "", err
	}
	res, _, err := one.run(request)
	var wrong *wrongRunError
	if errors.As(err, &wrong) && res.ExceptionType == "ModuleNotFoundError" && strings.Contains(res.ExceptionMessage, "numpy") {
		return "no numpy in the image of engine " + r.Engine, nil
	}
	return "", err
}

// warm runs an exercise on both sides until the daemon serves it from ready
// sandboxes, if it has any and says so, and for a moment in any case.
func (r *benchRunner) warm(ctx context.Context, e exercise) error {
	if err := r.warmOurs(ctx, e); err != nil {
		return err
	}
	_, err := r.plain.round(e, load{clients: 1, runs: 2})
	return err
}

func (r *benchRunner) warmOurs(ctx context.Context, e exercise) error {
	one, err := r.client(ctx)
	if err != nil {
		return err
	}
	defer one.conn.close()
	request, err := e.wire(r.Engine, sandbox.Limits{})
	if err != nil {
		return err
	}
	var ready []bool
	for begin := time.Now(); ; {
		res, _, err := one.run(request)
		if err != nil {
			return err
		}
		told := res.Usage.Ready != nil
		ready = append(ready, told && *res.Usage.Ready)
		spent := time.Since(begin)
		last := ready[max(len(ready)-warmReady, 0):]
		filled := len(last) == warmReady && !slices.Contains(last, false)
		if spent >= warmMost || spent >= min(r.Span, time.Second) && (filled || !told) {
			return nil
		}
		if err := pause(ctx, warmPause); err != nil {
			return err
		}
	}
}
