package pyrunner

import (
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Assemble makes the result of a run out of its facts and claims. The caller
// fills in what it alone knows: id, engine, image, layers, owner, limits.
func Assemble(mode sandbox.Mode, limits sandbox.Limits, e Ending) sandbox.Result {
	verdict, reason := sandbox.VerdictOf(mode, limits, e.Outcome, e.Report)
	res := sandbox.Result{
		Verdict:          verdict,
		Reason:           reason,
		Passed:           verdict == sandbox.Passed,
		Stdout:           e.Stdout.Text(),
		Stderr:           e.Stderr.Text(),
		StdoutTruncated:  e.Stdout.Truncated(),
		StderrTruncated:  e.Stderr.Truncated(),
		FailedAssertions: []string{},
		Failures:         orEmpty(e.Report.Failures),
		ElapsedSeconds:   e.Outcome.Usage.RunMillis / 1000,
		PassedCount:      e.Report.Passed,
		TotalCount:       e.Report.Total,
		Signal:           e.Outcome.Signal,
		Artifacts:        orEmpty(e.Artifacts),
		ArtifactsCut:     e.ArtifactsCut,
		Usage:            e.Outcome.Usage,
		Limits:           limits,
		Unenforced:       []string{},
		IntegrityNotes:   []string{},
		Integrity:        sandbox.IntegrityShared,
	}
	if e.Outcome.Exited {
		code := e.Outcome.ExitCode
		res.ExitCode = &code
	}
	for _, f := range res.Failures {
		res.FailedAssertions = append(res.FailedAssertions, f.Message)
	}
	fillException(&res, e.Report, limits)
	res.Summary = Summary(&res)
	return res
}

// fillException names what ended the run. Limits get the exception type that
// consumers of the runner's first form look for, and only when the program
// itself did not raise something that its own report tells.
func fillException(res *sandbox.Result, r sandbox.Report, limits sandbox.Limits) {
	switch res.Verdict {
	case sandbox.WallLimit:
		res.ExceptionType = "TimeoutError"
		res.ExceptionMessage = "stopped at the wall-clock limit of " + millis(limits.WallMillis)
	case sandbox.CPULimit:
		res.ExceptionType = "TimeoutError"
		res.ExceptionMessage = "stopped at the CPU limit of " + millis(limits.CPUMillis)
	case sandbox.MemoryLimit:
		res.ExceptionType = "MemoryError"
		res.ExceptionMessage = "killed at the memory limit of " + bytesText(limits.MemoryBytes)
	case sandbox.Raised, sandbox.Exited:
		if r.Exception != nil {
			res.Phase = r.Exception.Phase
			res.ExceptionType = r.Exception.Type
			res.ExceptionMessage = r.Exception.Message
			res.Traceback = strings.TrimRight(r.Exception.Traceback, "\n")
		}
	case sandbox.Passed, sandbox.Failed, sandbox.OutputLimit, sandbox.Crashed, sandbox.Refused, sandbox.Canceled:
	}
}
