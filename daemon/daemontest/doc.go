// Package daemontest runs a whole daemon in the test's own process, over a real
// Unix socket, with the engines that the test brings: for tests that need no
// privileges. It must never be linked into a program.
package daemontest
