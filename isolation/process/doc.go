// Package process is the engine for hosts that give no privileges: a process of
// its own with resource limits, a system call filter and, where the kernel has
// it, Landlock. It has no namespaces and no cgroups, says so in every result,
// and has to be allowed by configuration.
//
// As root every sandbox gets a host user id of its own; otherwise the program
// runs as the daemon's user, and only the filter and Landlock keep it from that
// user's other processes and files.
//
// The engine owns one scratch directory for each sandbox. It must never enter a
// scratch directory by a path that the program could have changed. Proven by the
// conformance suite in isolation/enginetest.
package process
