// Package fake is a scripted engine for tests that need no privileges: it
// confines nothing and runs no Python. A Play speaks the supervisor's side of
// the frame protocol over an in-memory pipe; ByText takes its cues from the
// program's own text.
//
// It must never be offered by a real daemon: cmd/sandboxd does not name it.
package fake
