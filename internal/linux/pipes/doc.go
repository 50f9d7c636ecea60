// Package pipes makes what a process is given as its standard streams, with the
// other ends for the daemon: pipes, files in memory (memfd_create(2)), and a
// stream on which the kernel tells who wrote (SCM_CREDENTIALS, unix(7)).
//
// The daemon's ends wait in the runtime's poller; the ends for processes block,
// as programs expect. Everything is close-on-exec. Proven by the tests beside it.
package pipes
