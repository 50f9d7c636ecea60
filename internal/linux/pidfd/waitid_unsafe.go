//go:build linux

package pidfd

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childInfo is siginfo_t as waitid(2) fills it, on 64-bit architectures
// (include/uapi/asm-generic/siginfo.h).
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

// Values of childInfo.code.
const (
	cldExited = 1
	cldDumped = 3
)

// waitid reaps the child without blocking.
func waitid(fd int) (Exit, error) {
	var info childInfo
	for {
		err := unix.Waitid(unix.P_PIDFD, fd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Exit{}, err
		}
		break
	}
	if info.pid == 0 { // WNOHANG, and nothing has changed
		return Exit{}, unix.EAGAIN
	}
	if info.code == cldExited {
		return Exit{Code: int(info.status)}, nil
	}
	return Exit{Code: -1, Signal: unix.Signal(info.status), Core: info.code == cldDumped}, nil
}
