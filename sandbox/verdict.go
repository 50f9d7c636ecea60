package sandbox

// Verdict is what became of the program. The set is closed; its strings are
// API. Failures of ours are errors, never verdicts.
type Verdict string

// The verdicts.
const (
	Passed      Verdict = "passed"       // every assertion held, or the script ended with 0
	Failed      Verdict = "failed"       // an assertion failed
	Raised      Verdict = "raised"       // an exception ended it, load errors included
	Exited      Verdict = "exited"       // it left before the tests were done, or a script with another code than 0
	WallLimit   Verdict = "wall_limit"   // ended at limits.wall_ms
	CPULimit    Verdict = "cpu_limit"    // ended at limits.cpu_ms
	MemoryLimit Verdict = "memory_limit" // killed at limits.memory_bytes
	OutputLimit Verdict = "output_limit" // ended at limits.output_stop_bytes
	Crashed     Verdict = "crashed"      // ended by a signal, or for a broken protocol
	Refused     Verdict = "refused"      // a policy check refused it; it never ran
	Canceled    Verdict = "canceled"     // the caller canceled it, or left
)

// Reasons that accompany the verdict crashed.
const (
	ReasonSignal   = "signal"
	ReasonProtocol = "protocol"
)

// Signals that VerdictOf must tell apart (signal(7); the same numbers on every
// architecture this runs on).
const (
	sigKill = 9
	sigXCPU = 24
)

// VerdictOf decides what became of a program that had started. It is pure, and
// it is the only place where verdicts come from.
//
// Facts go before claims: a program that was stopped, or that a signal ended,
// gets no verdict out of its report. A stop that came after the program had
// already left by itself is not held against it; what it had consumed by then
// is.
func VerdictOf(mode Mode, limits Limits, o Outcome, r Report) (Verdict, string) {
	killed := !o.Exited
	if killed && o.Stopped == StopCanceled {
		return Canceled, ""
	}
	if written := o.Usage.StdoutBytes + o.Usage.StderrBytes; limits.OutputStopBytes > 0 && written > limits.OutputStopBytes {
		return OutputLimit, ""
	}
	if killed {
		switch o.Stopped {
		case StopOutput:
			return OutputLimit, ""
		case StopWall:
			return WallLimit, ""
		case StopCPU:
			return CPULimit, ""
		case StopProtocol:
			return Crashed, ReasonProtocol
		case StopNone, StopCanceled:
		}
		if o.OOMKills > 0 && (o.Lost || o.Signal == sigKill) {
			return MemoryLimit, ""
		}
		if overCPU(limits, o) {
			return CPULimit, ""
		}
		if o.Lost {
			return Crashed, ReasonProtocol
		}
		return Crashed, ReasonSignal
	}
	if limits.CPUMillis > 0 && o.Usage.CPUMillis > float64(limits.CPUMillis) {
		return CPULimit, ""
	}
	return verdictOfReport(mode, o, r)
}

// overCPU tells whether the kernel's own RLIMIT_CPU ended the program: with
// soft equal to hard it sends SIGKILL, with a handler in between SIGXCPU, and
// neither says why, so the account decides.
func overCPU(limits Limits, o Outcome) bool {
	if o.Signal != sigKill && o.Signal != sigXCPU {
		return false
	}
	return limits.CPUMillis > 0 && o.Usage.CPUMillis >= float64(limits.CPUMillis)
}

// verdictOfReport judges a program that left by itself.
func verdictOfReport(mode Mode, o Outcome, r Report) (Verdict, string) {
	switch {
	case r.Broken != "":
		return Crashed, ReasonProtocol
	case r.Exception != nil && r.Exception.ExitCode != nil:
		return Exited, ""
	case r.Exception != nil:
		return Raised, ""
	case mode == ModeScript && o.ExitCode == 0:
		return Passed, "" // a script may also leave by os._exit(0)
	case !r.Done:
		return Exited, ""
	case r.Failed > 0:
		return Failed, ""
	case o.ExitCode != 0 || r.Passed != r.Total:
		return Exited, ""
	}
	return Passed, ""
}
