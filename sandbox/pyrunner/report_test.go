package pyrunner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sandbox"
)

// events joins event bodies into the lines of a channel with the nonce "n".
func events(bodies ...string) string {
	var b strings.Builder
	for _, body := range bodies {
		fmt.Fprintf(&b, `{"nonce":"n",%s}`+"\n", body)
	}
	return b.String()
}

func TestReport_CountsSites(t *testing.T) {
	const sites = `"event":"sites","top":2,"all":3`
	for _, c := range []struct {
		name                  string
		text                  string
		passed, failed, total int
		broken                bool
	}{
		{"none", events(), 0, 0, 0, false},
		{"all pass", events(sites, `"event":"passed","site":0`, `"event":"passed","site":1`, `"event":"done"`), 2, 0, 2, false},
		{"nested counts when evaluated", events(sites, `"event":"passed","site":0`, `"event":"passed","site":1`, `"event":"passed","site":2`, `"event":"done"`), 3, 0, 3, false},
		{"failing once fails", events(sites, `"event":"passed","site":0`, `"event":"failed","site":0`, `"event":"passed","site":1`, `"event":"done"`), 1, 1, 2, false},
		{"not reached still counts", events(sites, `"event":"passed","site":0`, `"event":"exception","type":"E"`), 1, 0, 2, false},
		{"stray failures count", events(sites, `"event":"failed"`, `"event":"passed","site":0`, `"event":"passed","site":1`, `"event":"done"`), 2, 1, 3, false},
		{"done too early", events(sites, `"event":"passed","site":0`, `"event":"done"`), 1, 0, 2, true},
		{"done with nothing reported", events(sites, `"event":"done"`), 0, 0, 2, true},
		{"fail fast stops early", events(sites, `"event":"failed","site":0`, `"event":"done"`), 0, 1, 2, false},
		{"site without number", events(sites, `"event":"passed"`), 0, 0, 2, true},
		{"site out of range", events(sites, `"event":"passed","site":3`), 0, 0, 2, true},
		{"negative site", events(sites, `"event":"passed","site":-1`), 0, 0, 2, true},
		{"sites before they were counted", events(`"event":"passed","site":0`), 0, 0, 0, true},
		{"counted twice", events(sites, sites), 0, 0, 2, true},
		{"more at the top than in all", events(`"event":"sites","top":2,"all":1`), 0, 0, 0, true},
		{"another nonce", `{"nonce":"m","event":"done"}` + "\n", 0, 0, 0, true},
		{"after the end", events(`"event":"done"`, `"event":"done"`), 0, 0, 0, true},
		{"unknown event", events(`"event":"victory"`), 0, 0, 0, true},
		{"no JSON", "passed\n", 0, 0, 0, true},
		{"JSON that is no object", "[1]\n", 0, 0, 0, true},
		{"cut off", `{"nonce":"n","event":"do`, 0, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReportReader("n")
			for part := range strings.SplitSeq(c.text, `"`) { // lines come in pieces
				if err := r.write([]byte(part)); err != nil {
					t.Fatal(err)
				}
				if err := r.write([]byte(`"`)); err != nil {
					t.Fatal(err)
				}
			}
			r.line = r.line[:max(0, len(r.line)-1)] // the last quote is the test's
			got := r.finish()
			if got.Passed != c.passed || got.Failed != c.failed || got.Total != c.total || (got.Broken != "") != c.broken {
				t.Errorf("passed %d failed %d total %d broken %q", got.Passed, got.Failed, got.Total, got.Broken)
			}
		})
	}
}

func TestReport_IsBounded(t *testing.T) {
	r := newReportReader("n")
	if err := r.write([]byte(strings.Repeat("x", maxEventBytes+1))); err != nil {
		t.Fatal(err)
	}
	if r.finish().Broken == "" || len(r.line) > maxEventBytes {
		t.Error("an endless event was kept")
	}
	r = newReportReader("n")
	chunk := []byte(strings.Repeat(events(`"event":"failed"`), 2*maxFailures) + strings.Repeat(" ", maxEventBytes/2) + "\n")
	var err error
	for range maxReportBytes/len(chunk) + 2 {
		if err = r.write(chunk); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFrame) {
		t.Errorf("an endless report gave %v", err)
	}
	if got := len(r.finish().Failures); got > maxFailures {
		t.Errorf("%d failures were kept", got)
	}
}

// TestReport_TextHasABudget: many long texts cost the daemon no more than a few.
func TestReport_TextHasABudget(t *testing.T) {
	r := newReportReader("n")
	long, err := json.Marshal(strings.Repeat("\x00é", 20_000))
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		line := events(`"event":"failed","message":` + string(long) + `,"left":` + string(long) + `,"right":"1"`)
		if err := r.write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	rep := r.finish()
	out, err := json.Marshal(rep.Failures)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Broken != "" || rep.Failed != 40 || len(rep.Failures) != 40 {
		t.Errorf("failed %d, kept %d, broken %q", rep.Failed, len(rep.Failures), rep.Broken)
	}
	if len(out) > textBudget+textBudget/10 {
		t.Errorf("the failures take %d bytes", len(out))
	}
	for i, f := range rep.Failures {
		if !utf8.ValidString(f.Message) || len(f.Message) < shortText-10 {
			t.Fatalf("failure %d: message of %d bytes", i, len(f.Message))
		}
	}
}

func TestTranscript_RefusesDisorder(t *testing.T) {
	limits := sandbox.DefaultLimits()
	limits.OutputBytes, limits.ArtifactBytes, limits.ArtifactCount = 10, 10, 1
	started, exit := &frame{Type: FrameStarted}, &frame{Type: FrameExit, Exit: &Exit{}}
	for _, c := range []struct {
		name   string
		frames []*frame
	}{
		{"output before the start", []*frame{{Type: FrameOutput, Stream: "stdout"}}},
		{"exit before the start", []*frame{{Type: FrameExit, Exit: &Exit{}}}},
		{"started twice", []*frame{started, started}},
		{"hello again", []*frame{started, {Type: FrameHello, Hello: &Hello{}}}},
		{"a daemon's frame", []*frame{started, {Type: FramePlan}}},
		{"unknown frame", []*frame{started, {Type: "verdict"}}},
		{"another stream", []*frame{started, {Type: FrameOutput, Stream: "stdin"}}},
		{"output over the cap", []*frame{started, {Type: FrameOutput, Stream: "stdout", Data: make([]byte, 11)}}},
		{"tail over the cap", []*frame{started, {Type: FrameOutput, Stream: "stderr", Data: make([]byte, 6)}, {Type: FrameOutput, Stream: "stderr", Tail: true, Data: make([]byte, 5)}}},
		{"artifact before the exit", []*frame{started, {Type: FrameArtifact, Path: "a"}}},
		{"output after the exit", []*frame{started, exit, {Type: FrameOutput, Stream: "stdout"}}},
		{"exit twice", []*frame{started, exit, exit}},
		{"done before the exit", []*frame{started, {Type: FrameDone}}},
		{"artifact over the cap", []*frame{started, exit, {Type: FrameArtifact, Path: "a", Data: make([]byte, 11)}}},
		{"too many artifacts", []*frame{started, exit, {Type: FrameArtifact, Path: "a"}, {Type: FrameArtifact, Path: "b"}}},
		{"artifact without a path", []*frame{started, exit, {Type: FrameArtifact}}},
		{"exit without facts", []*frame{started, {Type: FrameExit}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTranscript(limits, "n")
			var err error
			for _, f := range c.frames {
				if err = tr.take(f, &Conversation{}); err != nil {
					break
				}
			}
			if !errors.Is(err, ErrFrame) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOutput_MarksTheCut(t *testing.T) {
	o := Output{Head: []byte("head\xff"), Tail: []byte("tail"), Total: 100}
	if got := o.Text(); got != "head\ufffd\n… [91 bytes left out] …\ntail" || !o.Truncated() {
		t.Errorf("%q", got)
	}
	o = Output{Head: []byte("ab"), Tail: []byte("cd"), Total: 4}
	if got := o.Text(); got != "abcd" || o.Truncated() {
		t.Errorf("%q", got)
	}
}

func TestSummary_OrderAndLength(t *testing.T) {
	left, right := "3", "4"
	var stderr strings.Builder
	for i := range 60 {
		fmt.Fprintf(&stderr, "line %d\n", i)
	}
	got := Summary(&sandbox.Result{
		Verdict: sandbox.Raised, ExceptionType: "ValueError", ExceptionMessage: "bad",
		Failures: []sandbox.Failure{{Line: 2, Message: "three", Op: "==", Left: &left, Right: &right}, {Message: "AssertionError (no message)"}},
		Stderr:   stderr.String(),
	})
	lines := strings.Split(got, "\n")
	want := []string{
		"Exception: ValueError: bad", "Failed assertions:", "  - three (line 2: 3 == 4)",
		"  - AssertionError (no message)", "Traceback (last 40 lines):", "line 20",
	}
	for i, w := range want {
		if lines[i] != w {
			t.Errorf("line %d is %q, want %q", i, lines[i], w)
		}
	}
	if len(lines) != 5+40 || lines[len(lines)-1] != "line 59" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	many := &sandbox.Result{Verdict: sandbox.Failed}
	for range 500 {
		many.Failures = append(many.Failures, sandbox.Failure{Message: strings.Repeat("m", 5000)})
	}
	if got := Summary(many); len(got) > 20<<10 || !strings.HasSuffix(got, " more") {
		t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-20):])
	}
	if got := Summary(&sandbox.Result{Passed: true}); got != "All tests passed." {
		t.Errorf("passed: %q", got)
	}
}
