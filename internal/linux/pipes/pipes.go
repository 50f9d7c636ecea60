//go:build linux

package pipes

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Reading makes a pipe that the daemon reads: far is for the process.
func Reading() (near, far *os.File, err error) {
	r, w, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	return own(r, w)
}

// Writing makes a pipe that the daemon writes: far is for the process.
func Writing() (near, far *os.File, err error) {
	r, w, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	return own(w, r)
}

func pipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("make pipe: %w", err)
	}
	return fds[0], fds[1], nil
}

// own gives the near end to the runtime's poller, which takes only descriptors
// that do not block.
func own(near, far int) (*os.File, *os.File, error) {
	if err := unix.SetNonblock(near, true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make pipe: %w", err), unix.Close(near), unix.Close(far))
	}
	return os.NewFile(uintptr(near), "pipe"), os.NewFile(uintptr(far), "pipe"), nil
}

// OpenToOthers lets the file's owner and everybody else write to it by its name
// under /proc, and nobody else read it.
func OpenToOthers(f *os.File) error { return f.Chmod(0o622) }

// Memory is a file in memory, empty at first.
type Memory struct{ *os.File }

// NewMemory makes one.
func NewMemory(name string) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make file in memory: %w", err)
	}
	return &Memory{os.NewFile(uintptr(fd), name)}, nil
}

// Share returns another descriptor of the file, for a process.
func (m *Memory) Share() (*os.File, error) {
	fd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("share file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), m.Name()), nil
}

// Write writes at the beginning and not at the file's position, which is shared
// with the process that reads.
func (m *Memory) Write(p []byte) (int, error) { return m.WriteAt(p, 0) }

// WriteString implements io.StringWriter.
func (m *Memory) WriteString(s string) (int, error) { return m.Write([]byte(s)) }

// Seal makes the content final (F_ADD_SEALS, fcntl(2)) and closes the file.
func (m *Memory) Seal() error {
	const all = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	_, err := unix.FcntlInt(m.Fd(), unix.F_ADD_SEALS, all)
	return errors.Join(err, m.Close())
}

// Signed makes a pair of byte streams; on the near one the kernel says which
// process wrote.
func Signed() (near *net.UnixConn, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	nearFile, far := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("ask for credentials: %w", err), nearFile.Close(), far.Close())
	}
	conn, err := net.FileConn(nearFile) // duplicates
	if err = errors.Join(err, nearFile.Close()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("use socket: %w", err), far.Close())
	}
	return conn.(*net.UnixConn), far, nil //nolint:forcetypeassert,errcheck // a Unix socket by its making
}

// ReadSigned reads once from the near end of a Signed pair. pid is the writer's,
// in the reader's pid namespace.
func ReadSigned(conn *net.UnixConn, p []byte) (n, pid int, err error) {
	credentials := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, size, _, _, err := conn.ReadMsgUnix(p, credentials)
	if err != nil || n == 0 {
		return n, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(credentials[:size])
	if err != nil {
		return n, 0, fmt.Errorf("read credentials: %w", err)
	}
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return n, int(cred.Pid), nil
		}
	}
	return n, 0, errors.New("read credentials: the message has none")
}
