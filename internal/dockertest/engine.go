package dockertest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// wait is how long an Engine may take to start, and to stop.
const wait = 30 * time.Second

// Start starts an Engine without a network, and stops it when the test has ended.
// It returns its address.
func Start(t testing.TB) string {
	t.Helper()
	testenv.PrivilegedLane(t)
	testenv.Cgroup(t)
	dockerd := testenv.Binary(t, "dockerd")
	// Not the test's own directory: a socket's address has at most 107 bytes.
	dir, err := os.MkdirTemp("", "dockerd-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "docker.sock")
	parent := filepath.Base(dir)
	var log bytes.Buffer
	cmd := exec.Command(dockerd, //nolint:gosec // the tests' own
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "docker.pid"), "--host", "unix://"+socket, "--cgroup-parent", "/"+parent,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		if err := stop(cmd.Process, ended); err != nil {
			t.Errorf("%v\n%s", err, tail(log.Bytes()))
		}
		if err := errors.Join(os.RemoveAll(dir), removeGroups(parent)); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(wait); !answers(socket); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("dockerd does not start here:\n%s", tail(log.Bytes()))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("dockerd does not answer")
		}
	}
	return "unix://" + socket
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

func answers(socket string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return false
	}
	r, err := transport.RoundTrip(req)
	return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// stop ends the Engine as its service manager does; it unmounts what it has
// mounted.
func stop(p *os.Process, ended <-chan struct{}) error {
	if err := p.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-time.After(wait):
		return errors.Join(errors.New("dockerd did not end"), p.Kill())
	}
}

// removeGroups removes the cgroups above those of the Engine's containers, which
// the Engine leaves behind, in every hierarchy. They are empty.
func removeGroups(parent string) error {
	found, err := filepath.Glob("/sys/fs/cgroup/*/" + parent)
	for _, dir := range append(found, "/sys/fs/cgroup/"+parent) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
