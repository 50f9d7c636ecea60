// Package pyrunner is the Python runner: the guest code that every engine
// starts in its sandboxes (guest/*.py, embedded), the frame protocol between
// daemon and supervisor, the conversation with a program that has none, and the
// assembly of reports and results.
//
// The guest is hostile once the program has started: every length, count and
// order that comes from it is checked, and a breach ends the run as crashed
// (reason protocol); before that point a breach is our own internal error.
// FuzzDecoder, FuzzDirect and FuzzReport prove that no input crashes the daemon.
package pyrunner
