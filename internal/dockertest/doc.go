// Package dockertest starts a Docker Engine of a test's own: with directories, a
// socket and a cgroup that no other has. It must never touch another Engine.
package dockertest
