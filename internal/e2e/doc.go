// Package e2e tests the whole: real sandboxd and sandboxctl binaries over a
// socket, real sandboxes. It exports nothing and runs in the e2e lane only
// (SANDBOXD_LANE=e2e, as make test-e2e sets it); elsewhere its TestMain says so
// and runs no test. It needs root.
//
// Each test has a daemon of its own, with its socket and state in a temporary
// directory, and never touches a daemon of the host.
package e2e
