package runs

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Auto is the engine name by which a caller leaves the choice to the daemon.
const Auto = "auto"

// Config says how runs are planned and admitted.
type Config struct {
	MaxConcurrent int // sandboxes that exist at once, those being removed included
	QueueLength   int // runs that may wait

	Defaults sandbox.Limits
	Ceilings sandbox.Limits

	DefaultEngine string
	EngineOrder   []string // strongest first: what auto tries
	// Require names the layers without which nothing runs; RequireByEngine
	// replaces it for the engines that it lists.
	Require         []sandbox.Layer
	RequireByEngine map[string][]sandbox.Layer
	// Refused engines are known but may not be used: name to mend. Where Allowed is
	// not nil, so are all that it does not list.
	Refused map[string]string
	Allowed []string
	// Images is where runs' images are; without it they get their engine's own.
	Images Images

	Timing Timing
}

// Images is where the images are that runs name.
type Images interface {
	// Hold keeps an image until release is called: the one that reference names, or
	// the default for none. The zero image is the engine's own.
	Hold(reference string) (image sandbox.Image, release func(), err error)
}

// Timing holds the keeper's own deadlines, none of which is a limit of a run.
type Timing struct {
	Create  time.Duration // to make a sandbox
	Start   time.Duration // from the plan to the start of untrusted code
	End     time.Duration // for a supervisor to answer the end frame
	Collect time.Duration // for the files of a program that has ended
	Wait    time.Duration // for a killed process tree to be gone
	Destroy time.Duration // for one try at removing a sandbox
}

// DefaultTiming suits every engine.
func DefaultTiming() Timing {
	return Timing{
		Create:  30 * time.Second,
		Start:   30 * time.Second,
		End:     time.Second,
		Collect: 10 * time.Second,
		Wait:    10 * time.Second,
		Destroy: 30 * time.Second,
	}
}

func (c *Config) validate() error {
	var errs []error
	if c.MaxConcurrent < 1 {
		errs = append(errs, fmt.Errorf("max concurrent is %d, not at least 1", c.MaxConcurrent))
	}
	if c.QueueLength < 0 {
		errs = append(errs, fmt.Errorf("queue length is %d, not at least 0", c.QueueLength))
	}
	if c.Defaults == (sandbox.Limits{}) || c.Ceilings == (sandbox.Limits{}) {
		errs = append(errs, errors.New("default limits and ceilings must be given"))
	}
	if c.Require == nil {
		errs = append(errs, errors.New("required layers must be given, even if they are none"))
	}
	t := c.Timing
	for _, d := range []time.Duration{t.Create, t.Start, t.End, t.Collect, t.Wait, t.Destroy} {
		if d <= 0 {
			errs = append(errs, errors.New("every deadline of the keeper must be positive"))
			break
		}
	}
	return errors.Join(errs...)
}

// Manager admits, runs and lists. Make it with New; stop it with Drain.
type Manager struct {
	planner planner
	timing  Timing
	logger  *slog.Logger
	queue   *queue
	live    *registry
	counts  counters
	phases  phases
}

// New makes a manager over probed engines.
func New(cfg Config, engines []Engine, logger *slog.Logger) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure runs: %w", err)
	}
	if logger == nil {
		return nil, errors.New("configure runs: no logger")
	}
	return &Manager{
		planner: planner{cfg: cfg, engines: newEngineList(engines)},
		timing:  cfg.Timing,
		logger:  logger,
		queue:   newQueue(cfg.MaxConcurrent, cfg.QueueLength),
		live:    newRegistry(),
	}, nil
}
