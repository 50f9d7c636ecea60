// Package stdio holds the daemon's ends of one process's streams: standard
// input as a file in memory, output and report as pipes, what is said to it as
// another, and a socket on which the kernel names who says hello
// (SCM_CREDENTIALS, unix(7)). One wait hears them all, and the process's end.
//
// It must never leak a descriptor, block in a read or a write, or take the
// process's word for how it ended.
//
// Lock order: Streams.mu is held for system calls that do not block, never while
// waiting. One goroutine may Listen; the others' methods are for any.
//
// Proven by the tests beside it, which talk to a real process.
package stdio
