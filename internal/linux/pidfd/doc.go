// Package pidfd holds on to one process by descriptor (pidfd_open(2), Linux 5.3),
// so that a process id used again never stands for another process.
//
// It owns waiting without a thread (the runtime's poller), signals, and reaping
// of the caller's own children. It must never signal by number.
//
// Proven by TestFile_WaitsAndReaps and TestFile_SignalReachesOnlyItsProcess.
package pidfd
