// Package enginetest is the conformance suite that every engine must pass: the
// contract of isolation.Engine, the posture that a program sees, and a corpus of
// hostile programs (hostile/*.py), each of which names on its first lines what
// must become of it.
//
// An engine's own test calls Run with a function that makes the engine. Only
// tests import this package.
package enginetest
