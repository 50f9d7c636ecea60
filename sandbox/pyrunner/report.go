package pyrunner

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Caps on what the program's event channel may say. The program's own harness
// stays far below them; only a forger meets them.
const (
	maxReportBytes = 16 << 20 // in all
	maxEventBytes  = 1 << 20  // one line
	maxFailures    = 1000     // kept
	maxText        = 256 << 10
	// textBudget is what the failures of one run may hold of text, as JSON. What
	// comes after keeps its first shortText bytes.
	textBudget = 2 << 20
	shortText  = 200
)

// event is one line of the program's channel.
type event struct {
	Nonce string `json:"nonce"`
	Event string `json:"event"`

	Top int `json:"top"`
	All int `json:"all"`

	Site    *int    `json:"site"`
	Line    int     `json:"line"`
	Source  string  `json:"source"`
	Message string  `json:"message"`
	Op      string  `json:"op"`
	Left    *string `json:"left"`
	Right   *string `json:"right"`

	Phase     sandbox.Phase `json:"phase"`
	Type      string        `json:"type"`
	Traceback string        `json:"traceback"`
	ExitCode  *int          `json:"exit_code"`
}

// site is what was heard of one assert statement of the tests.
type site struct{ passed, failed bool }

// reportReader tallies the events of one run. It never trusts a count that it
// can make itself, and anything that contradicts what came before marks the
// report as broken: the run is then no pass whatever else was said.
type reportReader struct {
	nonce   string
	line    []byte // an unfinished line
	total   int64
	top     int
	all     int
	heard   bool // the sites event came
	sites   map[int]*site
	strays  int // failed assertions that are no site of the tests
	budget  int // what is left of textBudget
	report  sandbox.Report
	closing bool // done or exception came; nothing may follow
}

func newReportReader(nonce string) *reportReader {
	return &reportReader{nonce: nonce, sites: map[int]*site{}, budget: textBudget}
}

// write takes bytes of the channel. Only the sheer amount is an error: what the
// lines say decides the report, not the protocol.
func (r *reportReader) write(data []byte) error {
	r.total += int64(len(data))
	if r.total > maxReportBytes {
		return fmt.Errorf("%w: report over %d bytes", ErrFrame, maxReportBytes)
	}
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			r.line = append(r.line, data...)
			break
		}
		r.takeLine(append(r.line, data[:i]...))
		r.line = r.line[:0]
		data = data[i+1:]
	}
	if len(r.line) > maxEventBytes {
		r.line = r.line[:0]
		r.broken("an event is longer than %d bytes", maxEventBytes)
	}
	return nil
}

// wantsTests tells whether the program waits for its tests. A broken report
// counts too: its run is no pass, and ends sooner with them.
func (r *reportReader) wantsTests() bool { return r.report.Loaded || r.report.Broken != "" }

func (r *reportReader) broken(format string, args ...any) {
	if r.report.Broken == "" {
		r.report.Broken = fmt.Sprintf(format, args...)
	}
}

func (r *reportReader) takeLine(line []byte) {
	if r.report.Broken != "" || len(line) == 0 {
		return
	}
	var e event
	switch err := json.Unmarshal(line, &e); {
	case len(line) > maxEventBytes:
		r.broken("an event is longer than %d bytes", maxEventBytes)
	case err != nil:
		r.broken("an event is no JSON object of the expected form")
	case e.Nonce != r.nonce:
		r.broken("an event does not carry the run's nonce")
	case r.closing:
		r.broken("an event follows the last one")
	default:
		r.takeEvent(&e)
	}
}

func (r *reportReader) takeEvent(e *event) {
	switch e.Event {
	case "loaded":
		r.report.Loaded = true
	case "sites":
		if r.heard || e.Top < 0 || e.All < e.Top || e.All > maxReportBytes {
			r.broken("the assertions were counted twice or wrongly")
			return
		}
		r.heard, r.top, r.all = true, e.Top, e.All
	case "passed":
		if s := r.site(e); s != nil {
			s.passed = true
		}
	case "failed":
		r.takeFailure(e)
	case "exception":
		r.closing = true
		r.report.Exception = &sandbox.Exception{
			Phase: e.Phase, Type: clip(e.Type, 1024), Message: clip(e.Message, maxText),
			Traceback: clip(e.Traceback, maxText), ExitCode: e.ExitCode,
		}
	case "done":
		r.closing = true
		r.report.Done = true
	default:
		r.broken("an event has no known name")
	}
}

func (r *reportReader) site(e *event) *site {
	if e.Site == nil || !r.heard || *e.Site < 0 || *e.Site >= r.all {
		r.broken("an assertion was reported that the tests do not have")
		return nil
	}
	s := r.sites[*e.Site]
	if s == nil {
		s = &site{}
		r.sites[*e.Site] = s
	}
	return s
}

func (r *reportReader) takeFailure(e *event) {
	if e.Site == nil {
		r.strays++
	} else if s := r.site(e); s != nil {
		s.failed = true
	} else {
		return
	}
	if len(r.report.Failures) >= maxFailures {
		return
	}
	r.report.Failures = append(r.report.Failures, sandbox.Failure{
		Line: e.Line, Source: r.keep(e.Source), Message: r.keep(e.Message),
		Op: clip(e.Op, 16), Left: r.keepRepr(e.Left), Right: r.keepRepr(e.Right),
	})
}

// keep clips a text to what the run may still hold.
func (r *reportReader) keep(text string) string {
	text = clip(text, maxText)
	size := jsonLen(text)
	if size > r.budget {
		text = clip(text, shortText)
		size = min(r.budget, size)
	}
	r.budget -= size
	return text
}

func (r *reportReader) keepRepr(text *string) *string {
	if text == nil {
		return nil
	}
	kept := r.keep(*text)
	return &kept
}

// jsonLen is the length of a text as JSON, quotes not counted: a control
// character takes six bytes.
func jsonLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			n += 5
		}
	}
	return n
}

// finish counts. Sites are numbered with those of the top level first, so the
// ones below top count whether they were reached or not.
func (r *reportReader) finish() sandbox.Report {
	rep := &r.report
	if len(r.line) > 0 {
		r.broken("the last event is cut off")
	}
	nested, reachedTop := 0, 0
	for n, s := range r.sites {
		switch {
		case s.failed:
			rep.Failed++
		case s.passed:
			rep.Passed++
		}
		if n < r.top {
			reachedTop++
		} else {
			nested++
		}
	}
	rep.Failed += r.strays
	rep.Total = r.top + nested + r.strays
	if rep.Done && r.heard && reachedTop != r.top && rep.Failed == 0 {
		r.broken("done was reported before every top-level assertion had been evaluated")
	}
	return *rep
}
