// Package oci is the engine that has runc, crun or runsc make its sandboxes, as
// programs that are given a bundle: for hosts whose policy names the boundary.
// One Engine speaks with one runtime.
//
// A sandbox is one container, used once. Its configuration is isolation.Spec with
// what a container needs beside (bundle.go); its first process is the guest's
// supervisor, which speaks with the daemon over a socket pair that the runtime
// passes on as standard input. Nothing is ever executed in a container later.
// Supervisors are booted ahead of need (isolation/pool).
//
// Runtimes are started in a mount namespace of the daemon's own (mountns.Apart):
// the image's root is put together there, so that no mount is on the host or
// outlives a daemon that was killed, and crun sees no hybrid cgroups. Decision
// 0005 tells why.
//
// The engine owns Config.Dir, the parent of its cgroups and its host ids, and no
// other containers: the runtimes keep their state below Config.Dir. It must never
// trust a runtime to end: each call has a deadline, and what is left is removed by
// cgroup and by directory.
//
// Proven by the conformance suite in isolation/enginetest and
// TestEngine_LeavesNothing, for each runtime.
package oci
