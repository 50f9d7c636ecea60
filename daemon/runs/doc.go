// Package runs takes a spec to its result: planning, admission, and the keeper
// that owns each sandbox until it is gone.
//
// It must never report a verdict of its own making (sandbox.VerdictOf decides),
// never start anything for a request that planning refuses, and never answer
// while a process of the run still lives.
//
// Locks: Manager.mu and queue.mu are leaves; neither is held while the other is
// taken or while anything blocks. TestKeeper_* and TestAdmission_* prove the
// rules.
package runs
