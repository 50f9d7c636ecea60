package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/sandboxd/sandboxd/sandbox"
)

// theme decides how things look on one writer: with colours and lines on a
// terminal, plain and stable anywhere else.
type theme struct {
	out      io.Writer
	terminal bool
	fancy    bool

	good, bad, warn, dim, strong lipgloss.Style
}

func (a *app) themeFor(w io.Writer) *theme {
	t := &theme{out: w}
	if f, ok := w.(*os.File); ok {
		t.terminal = term.IsTerminal(f.Fd())
	}
	t.fancy = t.terminal && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
	if !t.fancy {
		return t
	}
	t.out = colorprofile.NewWriter(w, os.Environ())
	t.good = lipgloss.NewStyle().Foreground(lipgloss.Color("#4fb86a")).Bold(true)
	t.bad = lipgloss.NewStyle().Foreground(lipgloss.Color("#e5534b")).Bold(true)
	t.warn = lipgloss.NewStyle().Foreground(lipgloss.Color("#d8a13a"))
	t.dim = lipgloss.NewStyle().Foreground(lipgloss.Color("#8b949e"))
	t.strong = lipgloss.NewStyle().Bold(true)
	return t
}

// paint applies a style on a terminal only.
func (t *theme) paint(s lipgloss.Style, text string) string {
	if !t.fancy {
		return text
	}
	return s.Render(text)
}

// safe makes text of an untrusted program harmless to a terminal: control
// characters other than line ends and tabs are shown, not obeyed. Elsewhere the
// text is passed on as it is.
func (t *theme) safe(text string) string {
	if !t.terminal {
		return text
	}
	return visible(text)
}

// visible shows control characters as escapes.
func visible(text string) string {
	hidden := func(r rune) bool { return (r < 0x20 && r != '\n' && r != '\t') || (r >= 0x7f && r < 0xa0) || isBidi(r) }
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// isBidi finds the characters that reorder a line of text.
func isBidi(r rune) bool {
	return (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// oneLine fits untrusted text into a line.
func oneLine(text string, most int) string {
	text = visible(strings.ReplaceAll(strings.TrimSpace(text), "\n", "⏎"))
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// rows prints a table: with lines on a terminal, in aligned columns elsewhere.
func (t *theme) rows(head []string, rows [][]string) error {
	if t.fancy {
		tab := table.New().Border(lipgloss.RoundedBorder()).BorderStyle(t.dim).Headers(head...).Rows(rows...).
			StyleFunc(func(row, _ int) lipgloss.Style {
				style := lipgloss.NewStyle().Padding(0, 1)
				if row == table.HeaderRow {
					return style.Bold(true)
				}
				return style
			})
		_, err := fmt.Fprintln(t.out, tab)
		return err
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(head, "\t")))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// mark is the sign of a verdict.
func (t *theme) mark(passed bool) string {
	if passed {
		return t.paint(t.good, "✓")
	}
	return t.paint(t.bad, "✗")
}

// headline is the verdict in one line.
func (t *theme) headline(res *sandbox.Result) string {
	style := t.bad
	if res.Passed {
		style = t.good
	}
	text := t.mark(res.Passed) + " " + t.paint(style, string(res.Verdict))
	if about := headlineDetail(res); about != "" {
		text += ": " + about
	}
	return text
}

func headlineDetail(res *sandbox.Result) string {
	var parts []string
	if res.TotalCount > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d assertions held", res.PassedCount, res.TotalCount))
	}
	switch {
	case res.Signal != 0 && res.Verdict == sandbox.Crashed:
		parts = append(parts, fmt.Sprintf("signal %d", res.Signal))
	case res.Reason != "":
		parts = append(parts, res.Reason)
	case res.Verdict == sandbox.Exited && res.ExitCode != nil:
		parts = append(parts, fmt.Sprintf("exit code %d", *res.ExitCode))
	case res.ExceptionType != "":
		parts = append(parts, oneLine(strings.TrimSuffix(res.ExceptionType+": "+res.ExceptionMessage, ": "), 200))
	}
	return strings.Join(parts, ", ")
}
