package main

import (
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// showBench prints what a report says, with the targets beside it.
func (a *app) showBench(r *benchReport, check bool) error {
	t := a.themeFor(a.out)
	d, o := r.Daemon, r.Options
	fmt.Fprintf(t.out, "%s %s, engine %s, %s\n", t.paint(t.strong, "sandboxd"), d.Version, d.Engine, layersText(d))
	fmt.Fprintf(t.out, "plain    %s (Python %s), rlimits only\n", o.Python, r.Machine.Python)
	fmt.Fprintf(t.out, "machine  %d CPUs, kernel %s\n", r.Machine.CPUs, r.Machine.Kernel)
	fmt.Fprintf(t.out, "medians of %d alternating rounds, %s a side\n", o.Rounds, o.Span)
	if err := t.rows([]string{"measured", "sandboxd", "plain", "ratio", "target"}, t.benchRows(r)); err != nil {
		return err
	}
	t.benchNotes(r)
	return t.benchVerdict(r, check)
}

// benchRows lists the table's rows.
func (t *theme) benchRows(r *benchReport) [][]string {
	targets := map[string]benchTarget{}
	for _, target := range r.Ratios.targets() {
		targets[target.name] = target
	}
	var rows [][]string
	add := func(label, measured, target string, f figure, text func(*float64) string) {
		s, ok := r.Samples[measured]
		if !ok {
			return
		}
		ratio, bound := ratioText(s.ratio(f)), "-"
		if goal, ok := targets[target]; ok {
			ratio, bound = t.paint(t.judged(goal), ratio), goal.text()
		}
		rows = append(rows, []string{label, text(s.ours(f)), text(s.plain(f)), ratio, bound})
	}
	add("latency p50", measureLatency, "latency_p50", p50, fineMillis)
	add("latency p90", measureLatency, "", p90, fineMillis)
	add("latency p99", measureLatency, "latency_p99", p99, fineMillis)
	add("throughput, 1 client", measureLatency, "", perSecond, rateText)
	for _, n := range benchClients(r.Options.Full) {
		name := throughputName(n)
		add(fmt.Sprintf("throughput, %d clients", n), name, name, perSecond, rateText)
	}
	add("first run with no ready sandbox", measureAfterDry, "first_after_dry", p50, fineMillis)
	add("the same right after a burst", measureAfterBurst, "", p50, fineMillis)
	add("numpy imported, p50", measureNumpy, "numpy_p50", p50, fineMillis)
	add("numpy imported, p99", measureNumpy, "", p99, fineMillis)
	sources, outputs := benchSizes()
	for _, n := range sources {
		add("source of "+bytesText(int64(n))+", p50", sourceName(n), "", p50, fineMillis)
	}
	for _, n := range outputs {
		add("output of "+bytesText(int64(n))+", p50", outputName(n), "", p50, fineMillis)
	}
	add("CPU a run, 1 client", measureLatency, "", cpuPerRun, fineMillis)
	add("CPU a run, 16 clients", throughputName(16), "", cpuPerRun, fineMillis)
	return append(rows, costRows(r)...)
}

// costRows lists what only the daemon's side has.
func costRows(r *benchReport) [][]string {
	busy := r.Samples[throughputName(16)]
	row := func(label, value string) []string { return []string{label, value, "-", "-", "-"} }
	return [][]string{
		row("  of it the daemon", fineMillis(busy.of(func(o *benchOurs) *float64 { return o.DaemonCPU }))),
		row("  of it the engine", fineMillis(busy.of(func(o *benchOurs) *float64 { return o.EngineCPU }))),
		row("  beside it this client", fineMillis(busy.of(func(o *benchOurs) *float64 { return o.ClientCPU }))),
		row("idle ready sandbox, PSS", sizeText(r.Daemon.ReadyPSS)),
		row("daemon, RSS", sizeText(r.Daemon.RSS)),
	}
}

// benchNotes tells what a table does not.
func (t *theme) benchNotes(r *benchReport) {
	for _, name := range []string{measureNumpy} {
		if why := r.Skipped[name]; why != "" {
			fmt.Fprintf(t.out, "%s %s: %s\n", t.paint(t.warn, "not measured:"), name, why)
		}
	}
	refused, discarded := 0, 0
	for _, s := range r.Samples {
		refused += s.refused()
		for _, round := range s {
			discarded += round.Ours.Discarded
		}
	}
	if refused > 0 {
		fmt.Fprintf(t.out, "%s %d answers of a full daemon (429), asked again, counted nowhere\n", t.paint(t.warn, "refused:"), refused)
	}
	if discarded > 0 {
		fmt.Fprintf(t.out, "%s %d first runs that had found a ready sandbox after all\n", t.paint(t.warn, "left out:"), discarded)
	}
}

// benchVerdict names the targets that were missed. Without check they are told
// and hold nobody up.
func (t *theme) benchVerdict(r *benchReport, check bool) error {
	var missed []string
	for _, target := range r.Ratios.targets() {
		if !target.met() {
			missed = append(missed, fmt.Sprintf("%s %s (target %s)", target.name, ratioText(target.value), target.text()))
		}
	}
	text := t.mark(true) + " every target met"
	switch {
	case len(missed) > 0 && check:
		text = t.mark(false) + " missed: " + strings.Join(missed, ", ")
	case len(missed) > 0:
		text = "targets not met: " + strings.Join(missed, ", ")
	}
	_, err := fmt.Fprintln(t.out, text)
	return err
}

func (t *theme) judged(target benchTarget) lipgloss.Style {
	if target.met() {
		return t.good
	}
	return t.bad
}

// text is the bound as a person writes it.
func (t benchTarget) text() string {
	if t.atLeast {
		return fmt.Sprintf("≥ %g", t.bound)
	}
	return fmt.Sprintf("≤ %.2f", t.bound)
}

func fineMillis(ms *float64) string { return orDash("%.2f ms", ms) }

func rateText(rate *float64) string { return orDash("%.1f/s", rate) }

func ratioText(ratio *float64) string { return orDash("%.3f", ratio) }

func sizeText(size *float64) string {
	if size == nil {
		return "-"
	}
	return bytesText(int64(*size))
}

func orDash(format string, v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// benchProgress tells a person what is going on: on a terminal in one line that
// goes away, elsewhere a line for each round.
type benchProgress struct {
	out      io.Writer
	terminal bool
	last     string
}

func (a *app) progress() *benchProgress {
	return &benchProgress{out: a.err, terminal: a.themeFor(a.err).fancy}
}

func (p *benchProgress) show(text string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		return
	}
	if stage, _, _ := strings.Cut(text, ":"); stage != p.last {
		p.last = stage
		fmt.Fprintln(p.out, stage)
	}
}

func (p *benchProgress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
