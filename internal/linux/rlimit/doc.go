// Package rlimit names the resource limits and gives their numbers.
//
// The guest, which is Python, sets limits by number, and no number is written
// into Python. The numbers are those of asm-generic/resource.h, which amd64 and
// arm64 share; other architectures are not supported. It
// must never set a limit of the daemon.
//
// Proven by TestNumbers_MatchKernel and TestSet_LimitsAnotherProcess.
package rlimit
