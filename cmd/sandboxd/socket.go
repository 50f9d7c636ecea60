package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sandboxd/sandboxd/daemon/config"
)

// socketDirMode lets clients reach the socket; who may connect is the socket's
// own mode.
const socketDirMode = 0o755

// socketListener is the API's listener; it knows its file.
type socketListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen binds the socket where nobody can reach it yet, gives it its mode and
// group, and only then moves it into place: at no moment can a stranger connect,
// whatever the umask, and clients never see the path without a listener.
func listen(cfg config.Socket) (*socketListener, error) {
	mode, err := cfg.Permissions()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(cfg.Path)
	if err := makeDir(dir, socketDirMode); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	if err := checkStale(cfg.Path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(dir, ".s") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // the path is about to change
	s := &socketListener{UnixListener: l, path: cfg.Path}
	if err := s.place(made, mode, cfg.Group); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("make socket: %w", err)
	}
	return s, nil
}

func (s *socketListener) place(made string, mode os.FileMode, group string) (err error) {
	if err := giveTo(made, group); err != nil {
		return err
	}
	if err := os.Chmod(made, mode); err != nil {
		return err
	}
	if s.file, err = os.Lstat(made); err != nil {
		return err
	}
	return os.Rename(made, s.path)
}

// giveTo hands the file to a group if there is one of that name and we may.
func giveTo(path, group string) error {
	if group == "" {
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return nil //nolint:nilerr // a machine without the group keeps the daemon's own
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	if err := os.Chown(path, -1, gid); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	return nil
}

// checkStale lets only a socket be replaced that nobody listens on.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another daemon answers on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look at socket: %w", err)
	}
	return nil
}

// remove takes the socket's file away, if it is still this listener's.
func (s *socketListener) remove() error {
	_ = s.Close() // the server has closed it already, unless it never came to that
	now, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && !os.SameFile(now, s.file)) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(s.path)
}
