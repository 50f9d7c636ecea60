package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
)

// The constants below are written out, not taken from x/sys, because the filter
// may be for another architecture than the daemon's. They are the same on amd64
// and arm64.

// Errno values (include/uapi/asm-generic/errno.h).
const (
	errEPERM           = 1
	errENOTTY          = 25
	errENOSYS          = 38
	errEPROTONOSUPPORT = 93
	errEAFNOSUPPORT    = 97
)

// allow, deny and absent are the three plain answers.
func allow() block         { return block{bpf.RetConstant{Val: retAllow}} }
func errno(n uint32) block { return block{bpf.RetConstant{Val: retErrno | n}} }
func deny() block          { return errno(errEPERM) }
func absent() block        { return errno(errENOSYS) }

// arg loads the low 32 bits of a system call argument.
func arg(n int) bpf.Instruction { return bpf.LoadAbsolute{Off: uint32(offArgs + 8*n), Size: 4} }

// oneOf goes to then if the loaded value is among values, else to els. load may
// be several instructions (a load and a mask).
func oneOf(load block, values []uint32, then, els block) block {
	out := slices.Clone(load)
	for i, v := range values {
		skip := len(values) - 1 - i + len(els)
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(skip)})
	}
	return slices.Concat(out, els, then)
}

// anyBit goes to then if the argument has a bit of mask, else to els.
func anyBit(n int, mask uint32, then, els block) block {
	out := block{arg(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: mask, SkipFalse: uint8(len(then))}}
	return slices.Concat(out, then, els)
}

func masked(n int, mask uint32) block {
	return block{arg(n), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask}}
}

// Clone flags (include/uapi/linux/sched.h).
const (
	cloneThread = 0x00010000
	// cloneRefused is every CLONE_NEW* that clone(2) takes, and CLONE_PARENT,
	// which would make the program's children its supervisor's.
	cloneRefused = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 |
		0x10000000 | 0x20000000 | 0x40000000 | 0x00008000
	// cloneNamespaces is cloneRefused without CLONE_PARENT.
	cloneNamespaces = cloneRefused &^ 0x00008000
)

// checkClone allows threads, and processes where the profile does. The flags
// are the first argument on both architectures (clone(2)).
func checkClone(processes bool) block {
	if processes {
		return anyBit(0, cloneRefused, deny(), allow())
	}
	return anyBit(0, cloneRefused, deny(), anyBit(0, cloneThread, allow(), deny()))
}

// Socket constants (include/linux/socket.h, net.h, uapi/linux/in.h).
const (
	afUnix, afInet, afInet6 = 1, 2, 10
	sockStream, sockDgram   = 1, 2
	sockSeqpacket           = 5
	sockTypeMask            = 0xf // the rest is SOCK_CLOEXEC and SOCK_NONBLOCK
	ipprotoTCP, ipprotoUDP  = 6, 17
	solSocket, solTCP       = 1, 6
	solIPv6                 = 41
)

// checkSocket allows Unix, IPv4 and IPv6 stream and datagram sockets. The
// protocol of the latter two is compared as well: MPTCP, SCTP and SMC are
// reached with the plain types and load kernel modules.
func checkSocket() block {
	types := oneOf(masked(1, sockTypeMask), []uint32{sockStream, sockDgram}, allow(), deny())
	unixTypes := oneOf(masked(1, sockTypeMask), []uint32{sockStream, sockDgram, sockSeqpacket}, allow(), deny())
	inet := oneOf(block{arg(2)}, []uint32{0, ipprotoTCP, ipprotoUDP}, types, errno(errEPROTONOSUPPORT))
	return oneOf(block{arg(0)}, []uint32{afUnix}, unixTypes,
		oneOf(block{arg(0)}, []uint32{afInet, afInet6}, inet, errno(errEAFNOSUPPORT)))
}

// checkSocketpair allows Unix pairs. Where socket is refused, so are datagram
// pairs: sendto on one reaches any Unix socket by name (unix(7)), while the
// connected types answer EISCONN.
func checkSocketpair(sockets bool) block {
	types := []uint32{sockStream, sockSeqpacket}
	if sockets {
		types = append(types, sockDgram)
	}
	return oneOf(block{arg(0)}, []uint32{afUnix},
		oneOf(masked(1, sockTypeMask), types, allow(), deny()), errno(errEAFNOSUPPORT))
}

// checkFamily keeps the supervisor from the families whose sockets cross
// sandboxes or reach kernel subsystems (AF_VSOCK, AF_ALG, AF_PACKET, ...).
func checkFamily() block {
	return oneOf(block{arg(0)}, []uint32{afUnix, afInet, afInet6}, allow(), errno(errEAFNOSUPPORT))
}

// checkSetsockopt refuses what attaches programs to sockets (SO_ATTACH_FILTER,
// SO_ATTACH_BPF and their reuseport kin), TCP_ULP, which loads modules, and
// IPV6_FLOWLABEL_MGR, which leaves labels in a network after the socket is gone.
func checkSetsockopt() block {
	programs := oneOf(block{arg(2)}, []uint32{26, 50, 51, 52}, deny(), allow())
	ulp := oneOf(block{arg(2)}, []uint32{31}, deny(), allow())
	labels := oneOf(block{arg(2)}, []uint32{32}, deny(), allow())
	return oneOf(block{arg(1)}, []uint32{solSocket}, programs,
		oneOf(block{arg(1)}, []uint32{solTCP}, ulp,
			oneOf(block{arg(1)}, []uint32{solIPv6}, labels, allow())))
}

// Terminal requests that reach beyond the caller (ioctl_tty(2)).
var ioctlDenied = []uint32{
	0x540e, // TIOCSCTTY
	0x5412, // TIOCSTI
	0x541c, // TIOCLINUX
	0x541d, // TIOCCONS
	0x5423, // TIOCSETD
}

// Requests that CPython and terminals need.
var ioctlAllowed = []uint32{
	0x5401, 0x5402, 0x5403, 0x5404, // TCGETS, TCSETS, TCSETSW, TCSETSF
	0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // the same with struct termios2
	0x5409, 0x540b, // TCSBRK, TCFLSH
	0x540f, 0x5410, // TIOCGPGRP, TIOCSPGRP
	0x5413, 0x5414, // TIOCGWINSZ, TIOCSWINSZ
	0x541b, 0x5421, // FIONREAD, FIONBIO
	0x5450, 0x5451, 0x5452, // FIONCLEX, FIOCLEX, FIOASYNC
	0x80045430, 0x40045431, // TIOCGPTN, TIOCSPTLCK
}

// checkIoctl is an allowlist; what no driver here knows answers ENOTTY, as the
// kernel does. The kernel takes the request as unsigned int, so comparing the
// low half is exact (fs/ioctl.c).
func checkIoctl() block {
	return oneOf(block{arg(1)}, ioctlAllowed, allow(),
		oneOf(block{arg(1)}, ioctlDenied, deny(), errno(errENOTTY)))
}

// checkFcntl refuses F_NOTIFY (1026): directory notices are a channel between
// sandboxes that share read-only files, like inotify.
func checkFcntl() block { return oneOf(block{arg(1)}, []uint32{1026}, deny(), allow()) }

// Harmless options of prctl(2).
var prctlAllowed = []uint32{
	2,      // PR_GET_PDEATHSIG; setting it is not allowed: engines without a pid namespace end programs by it
	3,      // PR_GET_DUMPABLE
	7,      // PR_GET_KEEPCAPS
	15, 16, // PR_SET_NAME, PR_GET_NAME
	21,     // PR_GET_SECCOMP
	23,     // PR_CAPBSET_READ
	27,     // PR_GET_SECUREBITS
	29, 30, // PR_SET_TIMERSLACK, PR_GET_TIMERSLACK
	37,     // PR_GET_CHILD_SUBREAPER
	38, 39, // PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS
	40,     // PR_GET_TID_ADDRESS
	41, 42, // PR_SET_THP_DISABLE, PR_GET_THP_DISABLE
	51,         // PR_SVE_GET_VL
	52,         // PR_GET_SPECULATION_CTRL
	0x53564d41, // PR_SET_VMA: names anonymous memory
}

// checkPrctl leaves out PR_SET_DUMPABLE, PR_SET_PTRACER, PR_SET_MM,
// PR_SET_SECCOMP, PR_SET_SPECULATION_CTRL and everything else.
func checkPrctl() block { return oneOf(block{arg(0)}, prctlAllowed, allow(), deny()) }

// checkPersonality allows reading (0xffffffff) and PER_LINUX (personality(2)):
// the flags switch off address randomisation and read-implies-exec.
func checkPersonality() block {
	return oneOf(block{arg(0)}, []uint32{0, 0xffffffff}, allow(), deny())
}

// checkMknod allows FIFOs and regular files; n is the mode's place. The kernel
// takes the mode as 16 bits (umode_t), of which S_IFMT is 0xf000.
func checkMknod(n int) block {
	return oneOf(masked(n, 0xf000), []uint32{0, 0x8000, 0x1000}, allow(), deny())
}

// checkScheduler allows SCHED_OTHER, SCHED_BATCH and SCHED_IDLE (sched(7)).
func checkScheduler() block { return oneOf(block{arg(1)}, []uint32{0, 3, 5}, allow(), deny()) }

// checkPrlimit allows a process its own limits only.
func checkPrlimit() block { return oneOf(block{arg(0)}, []uint32{0}, allow(), deny()) }
