package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Problem is the body of every error answer (RFC 9457).
type Problem struct {
	Title  string   `json:"title" doc:"Text of the HTTP status"`
	Status int      `json:"status" doc:"HTTP status"`
	Code   string   `json:"code" enum:"invalid,not_found,conflict,denied,exhausted,unavailable,canceled,internal" doc:"What a caller can do about it; stable"`
	Detail string   `json:"detail" doc:"What is wrong, for a person"`
	Mend   string   `json:"mend,omitempty" doc:"What can be done about it"`
	RunID  string   `json:"run_id,omitempty" doc:"The run it happened to; the log says more"`
	Step   string   `json:"step,omitempty" doc:"The step of sandbox setup that failed"`
	Errors []Detail `json:"errors,omitempty" doc:"Each thing that is wrong"`
}

// Detail is one thing that is wrong with a request.
type Detail struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" doc:"Where it stands: body.limits.memory_bytes, query.limit"`
	Value    string `json:"value,omitempty" doc:"The value, when it is short"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// statuses maps kinds to HTTP; 499 is what proxies log for a client that left.
func statusOf(k sandbox.Kind) int {
	switch k {
	case sandbox.KindInvalid:
		return http.StatusUnprocessableEntity
	case sandbox.KindNotFound:
		return http.StatusNotFound
	case sandbox.KindConflict:
		return http.StatusConflict
	case sandbox.KindDenied:
		return http.StatusForbidden
	case sandbox.KindExhausted:
		return http.StatusTooManyRequests
	case sandbox.KindUnavailable:
		return http.StatusServiceUnavailable
	case sandbox.KindCanceled:
		return 499
	case sandbox.KindInternal:
	}
	return http.StatusInternalServerError
}

// kindOf maps a status that HTTP itself or the schema gave to a kind.
func kindOf(status int) sandbox.Kind {
	switch {
	case status == http.StatusNotFound:
		return sandbox.KindNotFound
	case status == http.StatusTooManyRequests:
		return sandbox.KindExhausted
	case status >= http.StatusInternalServerError:
		return sandbox.KindInternal
	}
	return sandbox.KindInvalid
}

// problem turns any error into the answer that its caller may see. What nobody
// classified is ours: its text goes to the log, and the caller gets the run's
// id to ask about.
func problem(ctx context.Context, logger *slog.Logger, err error) error {
	if ready, ok := errors.AsType[*Problem](err); ok {
		return ready
	}
	kind := sandbox.KindOf(err)
	p := &Problem{Status: statusOf(kind), Code: string(kind), Title: title(statusOf(kind))}
	if run, ok := errors.AsType[*runs.RunError](err); ok {
		p.RunID = run.ID
	}
	if step, ok := errors.AsType[*sandbox.StepError](err); ok {
		p.Step = step.Step
	}
	var known *sandbox.Error
	if kind == sandbox.KindInternal || !errors.As(err, &known) {
		logger.LogAttrs(ctx, slog.LevelError, "request failed", slog.String("run_id", p.RunID), slog.String("step", p.Step), slog.Any("err", err))
		p.Detail = "the daemon failed; its log says more"
		return p
	}
	describe(p, known)
	if kind == sandbox.KindExhausted {
		return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {"1"}})
	}
	return p
}

// describe tells the cause, and the field when the error is about one.
func describe(p *Problem, e *sandbox.Error) {
	p.Detail, p.Mend = e.Subject, e.Mend
	if e.Err != nil {
		p.Detail = strings.TrimPrefix(e.Subject+": "+e.Err.Error(), ": ")
	}
	var layers *runs.MissingLayersError
	switch {
	case errors.As(e.Err, &layers):
		for _, l := range layers.Missing {
			p.Errors = append(p.Errors, Detail{
				Location: "body." + e.Subject, Value: string(l.Layer),
				Message: strings.Join(slices.DeleteFunc([]string{string(l.State), l.Reason, l.Mend}, func(s string) bool { return s == "" }), ": "),
			})
		}
	case e.Op == "admit" && e.Subject != "" && e.Err != nil:
		p.Errors = []Detail{{Location: "body." + e.Subject, Message: e.Err.Error()}}
	}
}

func title(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Client Closed Request"
}

// adoptHuma makes huma answer with Problem, hold field names to their exact case
// and promise arrays. All are package variables of huma; they are set once, to the same
// values for every API of the process.
var adoptHuma = sync.OnceFunc(func() { //nolint:gochecknoglobals // guards huma's own globals
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return fromSchema(status, msg, errs)
	}
})

// maxEcho is how much of a wrong value an answer repeats.
const maxEcho = 64

// fromSchema makes the Problem of a request that the schema refused. Values are
// echoed only when they are short scalars: a body may hold megabytes.
func fromSchema(status int, msg string, errs []error) *Problem {
	p := &Problem{Status: status, Title: title(status), Code: string(kindOf(status)), Detail: msg}
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) {
			p.Errors = append(p.Errors, Detail{Message: clip(err.Error(), 4*maxEcho)})
			continue
		}
		detail := d.ErrorDetail()
		p.Errors = append(p.Errors, Detail{
			Message: clip(detail.Message, 4*maxEcho), Location: clip(detail.Location, 4*maxEcho), Value: echo(detail.Value),
		})
	}
	if len(p.Errors) > 0 {
		first := p.Errors[0]
		p.Detail = strings.TrimPrefix(first.Location+": "+first.Message, ": ")
	}
	return p
}
