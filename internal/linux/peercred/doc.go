// Package peercred tells who is at the other end of a Unix socket.
//
// It owns the reading of SO_PEERCRED (unix(7)): the ids that the peer had when
// it connected, as the kernel recorded them, seen from the daemon's user and pid
// namespaces. It must never take an identity from what the peer sends, and the
// pid is for messages only, since it may already belong to another process.
//
// Proven by TestOf_KernelNamesPeer.
package peercred
