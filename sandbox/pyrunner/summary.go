package pyrunner

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// What a summary shows at most: the last lines of stderr, and of texts what a
// model's context can bear.
const (
	summaryTraceback = 40
	summaryLine      = 2000     // bytes of one failure or line
	summaryFailures  = 16 << 10 // bytes of all failures
)

// Summary is a short account of a result for a person or a debugging model: the
// exception first, then the failed assertions, then the end of stderr, where
// the traceback is.
func Summary(r *sandbox.Result) string {
	if r.Passed {
		return "All tests passed."
	}
	var lines []string
	if r.ExceptionType != "" {
		lines = append(lines, fmt.Sprintf("Exception: %s: %s", r.ExceptionType, clip(r.ExceptionMessage, summaryLine)))
	} else if r.Verdict != sandbox.Failed {
		lines = append(lines, "Verdict: "+describe(r))
	}
	if len(r.Failures) > 0 {
		lines = append(lines, "Failed assertions:")
		lines = append(lines, failureLines(r.Failures)...)
	}
	if stderr := strings.TrimRight(r.Stderr, "\n"); stderr != "" {
		tail := strings.Split(stderr, "\n")
		lines = append(lines, fmt.Sprintf("Traceback (last %d lines):", summaryTraceback))
		for _, line := range tail[max(0, len(tail)-summaryTraceback):] {
			lines = append(lines, clip(line, summaryLine))
		}
	}
	return strings.Join(lines, "\n")
}

func describe(r *sandbox.Result) string {
	switch {
	case r.Verdict == sandbox.Crashed && r.Signal != 0:
		return fmt.Sprintf("crashed: signal %d", r.Signal)
	case r.Reason != "":
		return string(r.Verdict) + ": " + r.Reason
	case r.ExitCode != nil && r.Verdict == sandbox.Exited:
		return fmt.Sprintf("exited: code %d before the end", *r.ExitCode)
	}
	return string(r.Verdict)
}

// failureLines are the failures that fit, and how many do not.
func failureLines(failures []sandbox.Failure) []string {
	var lines []string
	room := summaryFailures
	for i, f := range failures {
		line := "  - " + clip(failureText(f), summaryLine)
		if room -= len(line); room < 0 {
			return append(lines, fmt.Sprintf("  … and %d more", len(failures)-i))
		}
		lines = append(lines, line)
	}
	return lines
}

// failureText is the message, and what it was about where the message alone
// does not say it.
func failureText(f sandbox.Failure) string {
	text := f.Message
	if f.Line > 0 {
		text += fmt.Sprintf(" (line %d", f.Line)
		if f.Left != nil && f.Right != nil && f.Op != "" {
			text += fmt.Sprintf(": %s %s %s", *f.Left, f.Op, *f.Right)
		}
		text += ")"
	}
	return text
}

func millis(ms int64) string {
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + " s"
}

func bytesText(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
