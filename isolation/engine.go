package isolation

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Engine makes sandboxes of one kind. Implementations are safe for concurrent
// use.
type Engine interface {
	// Name is the engine's name in requests, results and configuration.
	Name() string
	// Probe finds out what this host can hold and enforce by doing it. It may
	// take seconds; callers keep the answer.
	Probe(ctx context.Context) (Support, error)
	// Create makes a sandbox that waits for its one run. A
	// layer in p.Require that does not hold is a denied Error that names it.
	Create(ctx context.Context, p Plan) (Sandbox, error)
	// Reap removes what a dead daemon left, and nobody else's things.
	Reap(ctx context.Context) error
	// Close ends what the engine keeps between runs. No sandbox may be live.
	Close(ctx context.Context) error
}

// Sandbox is one single-use place that waits for what to run. Methods are safe
// for concurrent use.
type Sandbox interface {
	// Converse prepares the one run of this sandbox. The conversation ends by
	// itself when everybody in the sandbox is gone.
	Converse(req pyrunner.Request) *pyrunner.Conversation
	// Usage is what the sandbox has consumed so far; cheap enough to poll.
	Usage() (sandbox.Usage, error)
	// Kill ends every process of the sandbox. It returns at once and may be
	// called again.
	Kill() error
	// Wait blocks until every process that the program was or started is dead,
	// then tells what the kernel counted: OOMKills and Usage. The other fields stay zero: how
	// the program ended is the supervisor's to say.
	Wait(ctx context.Context) (sandbox.Outcome, error)
	// Failure says, after Wait, why the sandbox ended when that was the engine's
	// or the host's doing and not the program's: a kind that a caller can act on.
	// Nil means that nothing of that kind is known.
	Failure(ctx context.Context) error
	// Destroy kills what still runs and returns when nothing of the sandbox is
	// left on the host. It may be called again.
	Destroy(ctx context.Context) error
	// Making tells how the sandbox came to be, on the path of its run.
	Making() Making
	// Layers are the isolation layers that hold for this sandbox.
	Layers() []sandbox.LayerReport
}

// Making is how a sandbox came to be. What was done ahead of need counts nothing.
type Making struct {
	Ready   bool          // it was made ahead of need
	Pool    time.Duration // looking for a ready one
	Fork    time.Duration // until its first process existed
	Isolate time.Duration // from then until it was ready for its run
}

// Stats are an engine's own figures, since it was made.
type Stats struct {
	Ready      int     // sandboxes that wait for a run
	Taken      int64   // runs that got one of those
	Dry        int64   // runs that found none
	Zygotes    int64   // interpreters booted to fork from
	CPUSeconds float64 // used by everything that the engine runs
	ReadyBytes int64   // memory of one that waits, what it shares counted in parts (PSS); 0 when unknown
}

// Plan is a spec after defaults, ceilings and choices: all that an engine sees.
type Plan struct {
	ID      string         // of the run; [a-z0-9_] only, at most 64 bytes
	Image   string         // name or digest of the image; empty for the engine's own
	Limits  sandbox.Limits // every field set
	Collect bool           // files of the workspace are collected after the run
	Files   bool           // it brings files, to be written before the limit of files' size holds
	// Mentions tells whether the program's text speaks of a module: a hint for
	// what may be ready for it. Nil says nothing.
	Mentions func(module string) bool
	Require  []sandbox.Layer
}

// LimitSupport says how an engine stands to one limit.
type LimitSupport string

// The ways an engine stands to a limit.
const (
	Enforced    LimitSupport = "enforced"    // by the kernel or the supervisor, for the whole sandbox
	Unsupported LimitSupport = "unsupported" // a request that names it is refused
)

// Support is what an engine proved it can do on this host.
type Support struct {
	Engine      string                  `json:"engine"`
	Usable      bool                    `json:"usable" doc:"The engine can make sandboxes here"`
	Reason      string                  `json:"reason,omitempty" doc:"Why it is not usable"`
	Layers      []sandbox.LayerReport   `json:"layers"`
	Limits      map[string]LimitSupport `json:"limits" doc:"By limit name"`
	Interpreter string                  `json:"interpreter,omitempty" doc:"The Python of its default image"`
	Image       string                  `json:"image,omitempty" doc:"Name and digest of its default image"`
	Images      bool                    `json:"images" doc:"It runs stored images, too"`
	Notes       []string                `json:"notes,omitempty"`
}

// Missing lists the layers of require that s does not hold.
func (s Support) Missing(require []sandbox.Layer) []sandbox.LayerReport {
	var missing []sandbox.LayerReport
	for _, want := range require {
		if r := s.Layer(want); r.State != sandbox.LayerHeld {
			missing = append(missing, r)
		}
	}
	return missing
}

// Refuse is the refusal of a plan that requires a layer which does not hold, nil
// when all hold: the one check that every Create makes first.
func (s Support) Refuse(require []sandbox.Layer) error {
	missing := s.Missing(require)
	if len(missing) == 0 {
		return nil
	}
	r := missing[0]
	return &sandbox.Error{
		Kind: sandbox.KindDenied, Op: "create sandbox", Subject: "layer " + string(r.Layer),
		Err: errors.New(cmp.Or(r.Reason, "it is not part of this engine")), Mend: r.Mend,
	}
}

// Layer is the report on one layer; a layer the engine says nothing of is
// missing.
func (s Support) Layer(name sandbox.Layer) sandbox.LayerReport {
	for _, r := range s.Layers {
		if r.Layer == name {
			return r
		}
	}
	return sandbox.LayerReport{Layer: name, State: sandbox.LayerMissing, Reason: "the engine does not know this layer"}
}
