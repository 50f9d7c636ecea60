package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	engine string
	python string
	rounds int
	span   time.Duration
	full   bool
	file   string
	check  bool
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the daemon against a plain Python subprocess",
		Long: "Measures the running daemon against what people do without it: a Python program\n" +
			"that starts the interpreter on a wrapper script with rlimits, for each run. Both\n" +
			"take turns on the same job (ten lines, three assertions) with the same number of\n" +
			"clients. Figures are medians of the rounds, ratios are medians of each round's\n" +
			"own ratio. Every result is checked; one that is wrong ends the bench.\n\n" + benchExitHelp,
		Example: "  sandboxctl bench --json bench.json\n" +
			"  sandboxctl bench --rounds 1 --span 500ms",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.engine, "engine", "native", "engine that makes the sandboxes")
	flags.StringVar(&o.python, "python", "", "interpreter of the plain runs (default: the one that the daemon names for the engine)")
	flags.IntVar(&o.rounds, "rounds", 7, "times that each thing is measured on both sides")
	flags.DurationVar(&o.span, "span", 2*time.Second, "time of each side of each measurement")
	flags.BoolVar(&o.full, "full", false, "measure also 64 and 256 clients at once, and sizes of source and output")
	flags.StringVar(&o.file, "json", "", "write every round's figures as JSON into `FILE`, - for standard output instead of the table")
	flags.BoolVar(&o.check, "check", false, "end with 1 if a target is missed")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return o.run(ctx, a, c)
	})
	return cmd
}

const benchExitHelp = `Exit codes:
  0  measured
  1  a result was wrong or a run failed; with --check also: a target was missed
  2  wrong usage: nothing was sent
  3  could not measure: no daemon, no such engine, no interpreter, or interrupted`

func (o *benchOptions) validate() error {
	switch {
	case o.rounds < 1 || o.rounds > 1000:
		return usagef("--rounds: %d is not between 1 and 1000", o.rounds)
	case o.span < time.Millisecond:
		return usagef("--span: %s is not at least 1ms", o.span)
	}
	return nil
}

func (o *benchOptions) run(ctx context.Context, a *app, c *apiclient.Client) error {
	cfg, about, err := o.subject(ctx, c)
	if err != nil {
		return err
	}
	shown := a.progress()
	cfg.Progress = shown.show
	out, err := runBench(ctx, cfg)
	shown.clear()
	if _, ok := errors.AsType[*wrongRunError](err); ok {
		fmt.Fprintf(a.err, "sandboxctl: wrong result: %s\n", visible(err.Error()))
		return errNotPassed
	}
	if err != nil {
		return err
	}
	report := newBenchReport(cfg, out, about)
	if err := o.write(a, report); err != nil {
		return err
	}
	if o.file != stdinName {
		if err := a.showBench(report, o.check); err != nil {
			return err
		}
	}
	if o.check && !allMet(report.Ratios.targets()) {
		return errNotPassed
	}
	return nil
}

// subject asks the daemon what will be measured.
func (o *benchOptions) subject(ctx context.Context, c *apiclient.Client) (benchConfig, benchDaemon, error) {
	cfg := benchConfig{Socket: c.Socket(), Engine: o.engine, Rounds: o.rounds, Span: o.span, Full: o.full, Python: o.python}
	info, err := c.Info(ctx)
	if err != nil {
		return cfg, benchDaemon{}, err
	}
	doctor, err := c.Doctor(ctx)
	if err != nil {
		return cfg, benchDaemon{}, err
	}
	for i := range doctor.Engines {
		e := &doctor.Engines[i]
		if e.Engine != o.engine {
			continue
		}
		if !e.Usable || !e.Allowed {
			return cfg, benchDaemon{}, fmt.Errorf("engine %s cannot be used: %s", e.Engine, strings.TrimSpace(e.Reason+" "+e.Mend))
		}
		cfg.Required = e.Required
		if e.Limits["workspace_bytes"] == "enforced" {
			cfg.Workspace = info.Limits.WorkspaceBytes
		}
		if cfg.Python == "" {
			cfg.Python = interpreterPath(e.Interpreter)
		}
		held, _ := countLayers(e.Layers)
		return cfg, benchDaemon{Version: info.Version, Engine: e.Engine, Interpreter: e.Interpreter, LayersHeld: held}, nil
	}
	return cfg, benchDaemon{}, fmt.Errorf("the daemon has no engine called %q; it has %s", o.engine, engineNames(info.Engines))
}

const systemPython = "/usr/bin/python3"

// interpreterPath finds the path in "Python 3.11.2 at /usr/bin/python3.11". An
// image's own interpreter need not be there on this machine.
func interpreterPath(text string) string {
	if _, path, ok := strings.Cut(text, " at "); ok {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return systemPython
}

// write puts the report where --json wants it.
func (o *benchOptions) write(a *app, r *benchReport) error {
	if o.file == "" {
		return nil
	}
	if o.file == stdinName {
		return a.printJSON(r)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(o.file, text.Bytes(), 0o644)
}

func allMet(targets []benchTarget) bool {
	for _, t := range targets {
		if !t.met() {
			return false
		}
	}
	return true
}

// layersText tells how many layers the engine holds.
func layersText(d benchDaemon) string {
	return fmt.Sprintf("%d of %d layers held", d.LayersHeld, len(sandbox.Layers()))
}
