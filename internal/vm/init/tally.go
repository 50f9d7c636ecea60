package main

import (
	"regexp"
	"strconv"
	"strings"
)

// tally counts tests by what commands print.
type tally struct{ passed, failed, skipped int }

func (t *tally) add(o tally) {
	t.passed += o.passed
	t.failed += o.failed
	t.skipped += o.skipped
}

// summary is the last line of the case runners.
var summary = regexp.MustCompile(`^(\d+) passed, (\d+) failed$`)

// line takes one line of output: a top-level test of go test -v, or the summary
// of a case runner.
func (t *tally) line(s string) {
	switch {
	case strings.HasPrefix(s, "--- PASS: "):
		t.passed++
	case strings.HasPrefix(s, "--- FAIL: "):
		t.failed++
	case strings.HasPrefix(s, "--- SKIP: "):
		t.skipped++
	default:
		if m := summary.FindStringSubmatch(s); m != nil {
			passed, _ := strconv.Atoi(m[1])
			failed, _ := strconv.Atoi(m[2])
			t.passed += passed
			t.failed += failed
		}
	}
}
