package main

import (
	"strings"
	"testing"
)

func TestTally_CountsTopLevelTestsAndSummaries(t *testing.T) {
	var got tally
	for line := range strings.SplitSeq(`=== RUN   TestA
    --- PASS: TestA/sub (0.00s)
--- PASS: TestA (0.00s)
--- FAIL: TestB (0.00s)
--- SKIP: TestC (0.00s)
text 4 passed, 9 failed
7 passed, 2 failed`, "\n") {
		got.line(line)
	}
	if want := (tally{passed: 8, failed: 3, skipped: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
