package main

import (
	"fmt"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Bounds on what a person is shown; --json has all of it.
const (
	maxShownFailures = 20
	maxShownLines    = 20
	maxShownWidth    = 400
)

// showResult prints a verdict and what explains it.
func (a *app) showResult(res *sandbox.Result) error {
	t := a.themeFor(a.out)
	var b strings.Builder
	fmt.Fprintln(&b, t.headline(res))
	t.failures(&b, res)
	t.section(&b, "traceback", res.Traceback)
	t.section(&b, "stdout", res.Stdout)
	t.section(&b, "stderr", ownStderr(res))
	t.facts(&b, res)
	_, err := fmt.Fprint(t.out, b.String())
	return err
}

func (t *theme) failures(b *strings.Builder, res *sandbox.Result) {
	for i, f := range res.Failures {
		if i == maxShownFailures {
			fmt.Fprintf(b, "  … and %d more failures\n", len(res.Failures)-i)
			return
		}
		where := "not in the tests' own text"
		if f.Line > 0 {
			where = fmt.Sprintf("line %d", f.Line)
		}
		fmt.Fprintf(b, "  %s  %s\n", t.paint(t.strong, where), oneLine(f.Source, maxShownWidth))
		if f.Left != nil && f.Right != nil {
			fmt.Fprintf(b, "    %s   %s\n", t.paint(t.dim, "left"), oneLine(*f.Left, maxShownWidth))
			fmt.Fprintf(b, "    %s  %s\n", t.paint(t.dim, "right"), oneLine(*f.Right, maxShownWidth))
		}
		if f.Message != "" && f.Message != "AssertionError (no message)" {
			fmt.Fprintf(b, "    %s\n", oneLine(f.Message, maxShownWidth))
		}
	}
}

// section shows the end of a longer text.
func (t *theme) section(b *strings.Builder, name, text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	title := name
	if cut := len(lines) - maxShownLines; cut > 0 {
		title = fmt.Sprintf("%s (last %d lines of %d)", name, maxShownLines, len(lines))
		lines = lines[cut:]
	}
	fmt.Fprintf(b, "%s\n", t.paint(t.dim, title+":"))
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", visible(strings.TrimRight(line, "\r")))
	}
}

// ownStderr is stderr without the traceback that ends it.
func ownStderr(res *sandbox.Result) string {
	text := strings.TrimRight(res.Stderr, "\n")
	if res.Traceback == "" {
		return text
	}
	return strings.TrimSuffix(text, strings.TrimRight(res.Traceback, "\n"))
}

// facts tells what it took and what held.
func (t *theme) facts(b *strings.Builder, res *sandbox.Result) {
	u := res.Usage
	label := func(s string) string { return t.paint(t.dim, s) }
	fmt.Fprintf(b, "%s  run %s, cpu %s, setup %s, queue %s\n", label("time  "),
		millisText(u.RunMillis), millisText(u.CPUMillis), millisText(u.SetupMillis), millisText(u.QueueMillis))
	memory := "not measured"
	if u.MemoryPeakBytes > 0 {
		memory = bytesText(u.MemoryPeakBytes) + " at most, of " + bytesText(res.Limits.MemoryBytes)
	}
	fmt.Fprintf(b, "%s  %s\n", label("memory"), memory)
	held, out := countLayers(res.Layers)
	fmt.Fprintf(b, "%s  %s, image %s, integrity %s\n", label("engine"), res.Engine, res.Image, res.Integrity)
	layers := fmt.Sprintf("%d of %d held", held, len(res.Layers))
	switch {
	case len(res.Layers) == 0:
		layers = "none: nothing had to be run"
	case len(out) > 0:
		layers += ", not: " + strings.Join(out, ", ")
	}
	fmt.Fprintf(b, "%s  %s\n", label("layers"), layers)
	if len(res.Unenforced) > 0 {
		fmt.Fprintf(b, "%s  %s\n", t.paint(t.warn, "limits not enforced:"), strings.Join(res.Unenforced, ", "))
	}
}

func countLayers(layers []sandbox.LayerReport) (held int, out []string) {
	for _, l := range layers {
		if l.State == sandbox.LayerHeld {
			held++
		} else {
			out = append(out, string(l.Layer))
		}
	}
	return held, out
}
