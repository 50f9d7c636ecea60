// Package apiclient is the Go client of sandboxd's API over its Unix socket. It
// ignores response fields that it does not know, so it may be older than the
// daemon, and it builds on every system.
package apiclient
