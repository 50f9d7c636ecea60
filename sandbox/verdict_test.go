package sandbox

import (
	"testing"

	"pgregory.net/rapid"
)

func outcomes(t *rapid.T) Outcome {
	o := Outcome{
		Started:  true,
		ExitCode: rapid.IntRange(0, 3).Draw(t, "exit code"),
		Stopped:  rapid.SampledFrom([]StopCause{StopNone, StopNone, StopNone, StopWall, StopCPU, StopOutput, StopCanceled, StopProtocol}).Draw(t, "stopped"),
		OOMKills: rapid.Int64Range(0, 1).Draw(t, "oom kills"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "end") {
	case 0:
		o.Exited = true
	case 1:
		o.Signal = rapid.SampledFrom([]int{6, 9, 11, 24}).Draw(t, "signal")
	case 2:
		o.Lost = true
	}
	o.Usage.CPUMillis = rapid.SampledFrom([]float64{0, 999, 1000, 2000}).Draw(t, "cpu")
	return o
}

func reports(t *rapid.T) Report {
	r := Report{
		Loaded: rapid.Bool().Draw(t, "loaded"),
		Done:   rapid.Bool().Draw(t, "done"),
		Passed: rapid.IntRange(0, 2).Draw(t, "passed"),
		Failed: rapid.IntRange(0, 2).Draw(t, "failed"),
	}
	r.Total = r.Passed + r.Failed + rapid.IntRange(0, 1).Draw(t, "not reached")
	if rapid.IntRange(0, 3).Draw(t, "broken") == 0 {
		r.Broken = "broken"
	}
	if rapid.IntRange(0, 3).Draw(t, "exception") == 0 {
		r.Exception = &Exception{Type: "ValueError"}
		if rapid.Bool().Draw(t, "system exit") {
			code := 0
			r.Exception.ExitCode = &code
		}
	}
	return r
}

var allVerdicts = map[Verdict]bool{
	Passed: true, Failed: true, Raised: true, Exited: true, WallLimit: true, CPULimit: true,
	MemoryLimit: true, OutputLimit: true, Crashed: true, Canceled: true,
}

// TestVerdictOf_Properties: facts go before claims, whatever is claimed.
func TestVerdictOf_Properties(t *testing.T) {
	limits := Limits{CPUMillis: 1000}
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]Mode{ModeTests, ModeScript}).Draw(t, "mode")
		o, r := outcomes(t), reports(t)
		v, reason := VerdictOf(mode, limits, o, r)
		if !allVerdicts[v] {
			t.Fatalf("verdict %q is not of the set", v)
		}
		if (reason != "") != (v == Crashed) {
			t.Fatalf("verdict %s with reason %q", v, reason)
		}
		if v == Passed {
			if !o.Exited || o.ExitCode != 0 || r.Broken != "" || r.Exception != nil {
				t.Fatalf("passed after %+v %+v", o, r)
			}
			if mode == ModeTests && (!r.Done || r.Failed > 0 || r.Passed != r.Total) {
				t.Fatalf("passed with %+v", r)
			}
		}
		if !o.Exited { // what the guest claims changes nothing then
			if other, _ := VerdictOf(mode, limits, o, Report{Loaded: true, Done: true}); other != v {
				t.Fatalf("%s with one report, %s with another", v, other)
			}
		}
		if o.Exited { // what came too late changes nothing
			o.Stopped, o.OOMKills = StopWall, 5
			if late, _ := VerdictOf(mode, limits, o, r); late != v {
				t.Fatalf("%s, and %s when it was stopped after its end", v, late)
			}
		}
	})
}

func TestVerdictOf_Table(t *testing.T) {
	limits := Limits{CPUMillis: 1000}
	done := Report{Loaded: true, Done: true, Passed: 2, Total: 2}
	exited := Outcome{Started: true, Exited: true}
	zero := 0
	for _, c := range []struct {
		name    string
		mode    Mode
		o       Outcome
		r       Report
		verdict Verdict
		reason  string
	}{
		{"all held", ModeTests, exited, done, Passed, ""},
		{"no tests", ModeTests, exited, Report{Loaded: true, Done: true}, Passed, ""},
		{"one failed", ModeTests, exited, Report{Done: true, Passed: 1, Failed: 1, Total: 2}, Failed, ""},
		{"left early", ModeTests, exited, Report{Loaded: true, Passed: 2, Total: 2}, Exited, ""},
		{"done but another exit code", ModeTests, Outcome{Exited: true, ExitCode: 1}, done, Exited, ""},
		{"raised", ModeTests, exited, Report{Exception: &Exception{Type: "E"}}, Raised, ""},
		{"raised after a failure", ModeTests, exited, Report{Failed: 1, Total: 2, Exception: &Exception{Type: "E"}}, Raised, ""},
		{"sys.exit(0)", ModeTests, exited, Report{Exception: &Exception{Type: "SystemExit", ExitCode: &zero}}, Exited, ""},
		{"broken report", ModeTests, exited, Report{Done: true, Broken: "x"}, Crashed, ReasonProtocol},
		{"script", ModeScript, exited, Report{}, Passed, ""},
		{"script with a code", ModeScript, Outcome{Exited: true, ExitCode: 2}, Report{}, Exited, ""},
		{"segfault", ModeTests, Outcome{Signal: 11}, done, Crashed, ReasonSignal},
		{"lost", ModeTests, Outcome{Lost: true}, done, Crashed, ReasonProtocol},
		{"lost to the memory limit", ModeTests, Outcome{Lost: true, OOMKills: 1}, done, MemoryLimit, ""},
		{"only a child was killed for memory", ModeTests, Outcome{Exited: true, OOMKills: 1}, done, Passed, ""},
		{"segfault after a child was killed for memory", ModeTests, Outcome{Signal: 11, OOMKills: 1}, done, Crashed, ReasonSignal},
		{"RLIMIT_CPU", ModeTests, Outcome{Signal: 9, Usage: Usage{CPUMillis: 1000}}, done, CPULimit, ""},
		{"killed itself", ModeTests, Outcome{Signal: 9, Usage: Usage{CPUMillis: 10}}, done, Crashed, ReasonSignal},
		{"stopped for memory and time", ModeTests, Outcome{Signal: 9, OOMKills: 1, Stopped: StopWall}, done, WallLimit, ""},
		{"canceled", ModeTests, Outcome{Lost: true, Stopped: StopCanceled}, done, Canceled, ""},
		{"broke the protocol", ModeTests, Outcome{Lost: true, Stopped: StopProtocol}, done, Crashed, ReasonProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v, reason := VerdictOf(c.mode, limits, c.o, c.r); v != c.verdict || reason != c.reason {
				t.Errorf("%s %q, want %s %q", v, reason, c.verdict, c.reason)
			}
		})
	}
}
