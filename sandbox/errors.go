package sandbox

import (
	"errors"
	"fmt"
	"strings"
)

// Kind decides what a caller can do about a failure. The set is closed; its
// strings are API.
type Kind string

// The kinds of failure. What the program did is a verdict, never a Kind.
const (
	KindInvalid     Kind = "invalid"     // the request is wrong; sending it again will not help
	KindNotFound    Kind = "not_found"   // no such run, or not the caller's
	KindConflict    Kind = "conflict"    // the state does not allow it now
	KindDenied      Kind = "denied"      // the caller may not, or the host cannot do it as safely as asked
	KindExhausted   Kind = "exhausted"   // full; try again later
	KindUnavailable Kind = "unavailable" // an engine or the daemon is not ready
	KindCanceled    Kind = "canceled"    // the caller left or canceled
	KindInternal    Kind = "internal"    // our fault
)

// Error is a failure of ours with enough said to act on it.
type Error struct {
	Kind    Kind
	Op      string // what was being done: "admit", "mount rootfs"
	Subject string // what it was done to: "limits.memory_bytes", "image host"
	Err     error  // cause; its text may be shown to the caller only when Kind is not internal
	Mend    string // what the operator or caller can do next; may be empty
}

// Error joins the parts that are set.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, p := range []string{e.Op, e.Subject} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	text := strings.Join(parts, ": ")
	if e.Mend != "" {
		text += " (" + e.Mend + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error whose cause is the formatted text.
func Errorf(kind Kind, op, subject, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Subject: subject, Err: fmt.Errorf(format, args...)}
}

// KindOf is the kind of the outermost Error in err's chain, and internal when
// there is none: an error nobody classified is our fault.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// StepError is a failure of sandbox setup that crossed a process boundary: the
// step by name, its index within the step, and the kernel's error number.
type StepError struct {
	Step    string `json:"step"`
	Index   int    `json:"index,omitempty"`
	Errno   int    `json:"errno,omitempty"`
	Message string `json:"message,omitempty"`
}

func (e *StepError) Error() string {
	text := "step " + e.Step
	if e.Index > 0 {
		text += fmt.Sprintf(" %d", e.Index)
	}
	if e.Errno != 0 {
		text += fmt.Sprintf(": errno %d", e.Errno)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}
