package sandbox

// Report is what the guest claimed about the tests: assertion events, never
// facts. In shared integrity the solution could have forged it.
type Report struct {
	Loaded    bool // the solution was loaded
	Done      bool // the tests, or the script, ran to their end
	Passed    int  // assertions that held whenever they were evaluated
	Failed    int  // assertions that failed at least once
	Total     int  // Passed, Failed and the top-level ones not reached
	Failures  []Failure
	Exception *Exception
	Broken    string // how the events contradict each other or the protocol; empty when they do not
}

// Failure is one failed assertion.
type Failure struct {
	Line    int     `json:"line" doc:"Line of the tests where the assertion stands; 0 when it is not one of theirs"`
	Source  string  `json:"source,omitempty" doc:"Source text of the assertion"`
	Message string  `json:"message" doc:"Its message, as str() of the AssertionError"`
	Op      string  `json:"op,omitempty" doc:"Operator of the comparison"`
	Left    *string `json:"left,omitempty" doc:"Left side as a bounded repr"`
	Right   *string `json:"right,omitempty" doc:"Right side as a bounded repr"`
}

// Exception is an exception that ended the run and was no failed assertion.
type Exception struct {
	Phase     Phase
	Type      string
	Message   string
	Traceback string
	ExitCode  *int // of a SystemExit
}

// Phase says in whose text something happened.
type Phase string

// The phases of a run.
const (
	PhaseSolution Phase = "solution"
	PhaseTests    Phase = "tests"
	PhaseProgram  Phase = "program"
)
