// Package testenv says what a test needs of the host, and makes the lanes honest:
// a skip is not a pass.
//
// In a strict lane (SANDBOXD_LANE is root, e2e or vm) an unmet need fails the
// test, unless the need is listed in SANDBOXD_MISSING (comma-separated, as
// printed in the message), with which a machine owns up to what it lacks.
// Elsewhere the test is skipped with a reason. A kernel older than a test
// demands is a skip in every lane, and a test that names its lanes is one in the
// others.
//
// It must never change the host. Proven by its own tests.
package testenv
