//go:build linux

package peercred

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Credentials are a peer's ids at the time of connect(2) or socketpair(2).
type Credentials struct {
	UID uint32
	GID uint32
	// PID is 0 when the peer is in a pid namespace that the daemon does not see.
	PID int32
}

// overflowID stands for an id with no mapping in the caller's user namespace
// (/proc/sys/kernel/overflowuid). Every unmapped user shares it.
const overflowID = 65534

// ErrUnmapped says that the peer's uid has no mapping here, so that it cannot be
// told from other users. Uid 65534 is what such peers look like, so a real user
// with that uid (nobody) is refused as well.
var ErrUnmapped = errors.New("peer's uid has no mapping in this user namespace")

// Of returns the credentials of conn's peer. A peer with an unmapped uid is
// [ErrUnmapped].
func Of(conn *net.UnixConn) (Credentials, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Credentials{}, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, sockErr); err != nil {
		return Credentials{}, fmt.Errorf("read peer credentials: %w", err)
	}
	// The kernel answers uid -1 for a socket that was never connected.
	if cred.Uid == ^uint32(0) {
		return Credentials{}, errors.New("read peer credentials: socket has no peer")
	}
	if cred.Uid == overflowID {
		return Credentials{}, ErrUnmapped
	}
	return Credentials{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}
