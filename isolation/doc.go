// Package isolation is the contract between the daemon and what confines a
// program: Engine, Sandbox, Plan and Support, and the one function that
// describes a sandbox as an OCI runtime spec.
//
// Engines report facts; they never decide a verdict. An engine that cannot hold
// a layer or enforce a limit says so in its Support; it never runs weaker than
// the plan asks. The conformance suite in isolation/enginetest holds every
// engine to this contract.
package isolation
