// Package native is the engine that needs no other software: namespaces,
// cgroups, a read-only root and a zygote, carried out by the kernel's own calls.
//
// For each preload set (family) the engine starts one container: a re-executed
// daemon enters new namespaces and the image's root (EnterContainer) and becomes
// the image's interpreter, the zygote. For each run, or ahead of it for the pool,
// the zygote forks a child that isolates itself (guest/isolate.py) as
// isolation.Spec describes; so every isolation step is written once, in the guest.
//
// The engine owns the sandboxes' cgroups, host ids and descriptors. It must
// never run a program in a sandbox that lacks a layer the plan requires, and
// never hand one sandbox, group or id to two live runs.
//
// Lock order: family.mu, then zygote.mu; the others are held alone. Proven by the
// conformance suite in isolation/enginetest and TestEngine_LeavesNothing.
package native
