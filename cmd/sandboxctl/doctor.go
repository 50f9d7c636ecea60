package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Show what each engine can hold on the daemon's host",
		Long: "Shows for each engine which isolation layers hold on the daemon's host, why\n" +
			"others do not, and what to do about it. Ends with 0 only if the engine that\n" +
			"serves by default holds everything that the configuration requires.\n\n" + exitHelp,
		Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
			d, err := c.Doctor(ctx)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(d)
			} else {
				err = a.showDoctor(&d)
			}
			if err == nil && !d.OK {
				err = errNotPassed
			}
			return err
		}),
	}
}

func (a *app) showDoctor(d *apiclient.Doctor) error {
	t := a.themeFor(a.out)
	for i := range d.Engines {
		if err := t.engine(&d.Engines[i]); err != nil {
			return err
		}
	}
	text := "a run that names no engine is served with everything required"
	if !d.OK {
		text = "a run that names no engine is refused: " + d.Problem
	}
	_, err := fmt.Fprintf(t.out, "%s %s\n", t.mark(d.OK), text)
	return err
}

// engine shows one engine's probe.
func (t *theme) engine(e *apiclient.Engine) error {
	title := t.paint(t.strong, "engine "+e.Engine)
	if e.Default {
		title += " (default)"
	}
	fmt.Fprintln(t.out, title)
	if !e.Usable {
		fmt.Fprintf(t.out, "  %s %s\n", t.paint(t.bad, "not usable:"), e.Reason)
	}
	if !e.Allowed {
		fmt.Fprintf(t.out, "  %s %s\n", t.paint(t.warn, "not allowed:"), e.Mend)
	}
	if e.Interpreter != "" {
		fmt.Fprintf(t.out, "  image %s, %s\n", e.Image, e.Interpreter)
	}
	rows := make([][]string, 0, len(e.Layers))
	for _, l := range e.Layers {
		rows = append(rows, []string{string(l.Layer), t.layerState(l, e.Requires(l.Layer)), dash(l.Reason), dash(l.Mend)})
	}
	if len(rows) > 0 {
		if err := t.rows([]string{"layer", "state", "reason", "mend"}, rows); err != nil {
			return err
		}
	}
	if lacking := unsupported(e.Limits); lacking != "" {
		fmt.Fprintf(t.out, "  limits that it cannot enforce: %s\n", lacking)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(t.out, "  note: %s\n", note)
	}
	_, err := fmt.Fprintln(t.out)
	return err
}

func (t *theme) layerState(l sandbox.LayerReport, required bool) string {
	text := strings.ReplaceAll(string(l.State), "_", " ")
	switch {
	case l.State == sandbox.LayerHeld:
		return t.paint(t.good, text)
	case required:
		return t.paint(t.bad, text+", required")
	}
	return t.paint(t.warn, text)
}

// unsupported lists, in wire order, the limits that an engine does not enforce.
func unsupported(support map[string]string) string {
	var names []string
	var all sandbox.Limits
	for _, f := range all.Fields() {
		if support[f.Name] != "enforced" {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
