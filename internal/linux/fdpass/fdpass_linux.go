package fdpass

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// MaxMessage is the size of the largest message in bytes.
const MaxMessage = 64 << 10

const maxFiles = 16 // in one message

// Conn is one end of a pair that keeps message borders.
type Conn struct{ conn *net.UnixConn }

// Pair makes a connected pair that keeps message borders: one end for the
// daemon, the other to hand to a process.
func Pair() (*Conn, *os.File, error) {
	near, far, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	conn, err := unixConn(near)
	if err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return &Conn{conn}, far, nil
}

// StreamPair makes a connected pair of byte streams: one end for the daemon, the
// descriptor of the other to hand to a process.
func StreamPair() (*net.UnixConn, []int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	conn, err := unixConn(os.NewFile(uintptr(fds[0]), "socket"))
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	return conn, fds[1:], nil
}

func socketpair(kind int) (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f) // duplicates
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("use socket: %w", err)
	}
	return conn.(*net.UnixConn), nil //nolint:forcetypeassert,errcheck // a Unix socket by its making
}

// FromFile makes a Conn of the end that a process was given; f is closed.
func FromFile(f *os.File) (*Conn, error) {
	conn, err := unixConn(f)
	if err != nil {
		return nil, err
	}
	return &Conn{conn}, nil
}

// Close closes this end.
func (c *Conn) Close() error { return c.conn.Close() }

// Send sends one message with descriptors. The files stay the caller's.
func (c *Conn) Send(message []byte, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return c.SendFDs(message, fds)
}

// SendFDs is Send for descriptors that are no files here.
func (c *Conn) SendFDs(message []byte, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(message, rights, nil)
	if err == nil && n != len(message) {
		err = fmt.Errorf("sent %d of %d bytes", n, len(message))
	}
	return err
}

// Receive receives one message and its descriptors, which become the caller's.
func (c *Conn) Receive() ([]byte, []*os.File, error) {
	buf := make([]byte, MaxMessage)
	rights := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, rn, flags, _, err := c.conn.ReadMsgUnix(buf, rights)
	if err != nil {
		return nil, nil, err
	}
	files, err := parseRights(rights[:rn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("message is cut off")
	}
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, nil, fmt.Errorf("receive message: %w", err)
	}
	return buf[:n], files, nil
}

func parseRights(data []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(data)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
