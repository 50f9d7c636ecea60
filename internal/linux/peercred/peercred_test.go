//go:build linux

package peercred

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

const dialVariable = "PEERCRED_TEST_DIAL"

// TestMain dials the given socket when re-executed, and waits to be let go.
func TestMain(m *testing.M) {
	if path := os.Getenv(dialVariable); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.ReadAll(conn)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// listen makes a socket that every user can connect to.
func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "peercred") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, p := range []string{dir, path} {
		if err := os.Chmod(p, 0o777); err != nil { //nolint:gosec // for other users, see above
			t.Fatal(err)
		}
	}
	return l
}

// peer starts a dialling process with the given ids and returns our end.
func peer(t *testing.T, uid, gid uint32) (*net.UnixConn, int) {
	t.Helper()
	l := listen(t)
	self := copySelf(t, filepath.Dir(l.Addr().String()))
	cmd := exec.Command(self)
	cmd.Env = []string{dialVariable + "=" + l.Addr().String()}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = cmd.Wait() })
	return conn, cmd.Process.Pid
}

// copySelf puts the test binary where other users can execute it.
func copySelf(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "dial")
	if err := os.WriteFile(path, data, 0o755); err != nil { //nolint:gosec // for other users
		t.Fatal(err)
	}
	return path
}

func TestOf_KernelNamesPeer(t *testing.T) {
	testenv.Root(t)
	conn, pid := peer(t, 54321, 54322)
	got, err := Of(conn)
	if want := (Credentials{UID: 54321, GID: 54322, PID: int32(pid)}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestOf_RefusesOverflowUser(t *testing.T) {
	testenv.Root(t)
	conn, _ := peer(t, overflowID, overflowID)
	if got, err := Of(conn); !errors.Is(err, ErrUnmapped) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOf_OwnPeerWithoutPrivileges(t *testing.T) {
	l := listen(t)
	dialled, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	got, err := Of(dialled)
	want := Credentials{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
