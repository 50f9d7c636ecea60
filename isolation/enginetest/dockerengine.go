package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

// DockerEngine is a Docker Engine of the tests' own: with directories, a socket and
// a cgroup that no other has.
type DockerEngine struct {
	Socket string

	dir    string
	args   []string
	parent string
	log    bytes.Buffer
	cmd    *exec.Cmd
	done   chan struct{}
}

// engineWait is how long an Engine may take to start, and to stop.
const engineWait = 30 * time.Second

// NewDockerEngine starts one in dir, which must be below a short path: the address
// of a socket has 107 bytes. args are added to its own.
func NewDockerEngine(dir string, args ...string) (*DockerEngine, error) {
	e := &DockerEngine{
		dir: dir, Socket: filepath.Join(dir, "docker.sock"), parent: fmt.Sprintf("/sandboxd-docker-test-%d", os.Getpid()),
	}
	e.args = append([]string{
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "docker.pid"), "--host", "unix://" + e.Socket, "--cgroup-parent", e.parent,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
	}, args...)
	return e, e.Start()
}

// Start starts it, again after Kill.
func (e *DockerEngine) Start() error {
	_ = os.Remove(filepath.Join(e.dir, "docker.pid")) // of one that was killed
	e.cmd = exec.Command("dockerd", e.args...)
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	e.cmd.WaitDelay = time.Second
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.done = make(chan struct{})
	go func() {
		defer close(e.done)
		_ = e.cmd.Wait()
	}()
	for deadline := time.Now().Add(engineWait); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-e.done:
			return fmt.Errorf("dockerd does not start here: %s", e.lastWords())
		default:
		}
		if e.answers() {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("dockerd does not answer: %s", e.lastWords()), e.Kill())
		}
	}
}

// lastWords may be called when it has ended.
func (e *DockerEngine) lastWords() string {
	text := e.log.Bytes()
	return string(text[max(0, len(text)-2000):])
}

func (e *DockerEngine) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return false
	}
	r, err := transport.RoundTrip(req)
	if err != nil {
		return false
	}
	return r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// Kill ends it as a crash does.
func (e *DockerEngine) Kill() error { return e.end(os.Kill) }

// Halt ends it as its service manager does: it ends its containers before.
func (e *DockerEngine) Halt() error { return e.end(os.Interrupt) }

// Stop ends it and removes what it had.
func (e *DockerEngine) Stop() error {
	errs := []error{e.Halt()}
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: e.parent})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	errs = append(errs, groups.Reap(ctx), groups.Close(), os.RemoveAll(e.dir))
	return errors.Join(errs...)
}

func (e *DockerEngine) end(how os.Signal) error {
	select {
	case <-e.done:
		return nil
	default:
	}
	if err := e.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-e.done:
		return nil
	case <-time.After(engineWait):
		return errors.Join(errors.New("dockerd did not end"), e.cmd.Process.Kill())
	}
}

// NeedDockerd demands what a Docker Engine of the tests' own takes.
func NeedDockerd(tb testing.TB) {
	tb.Helper()
	testenv.Cgroup(tb)
	testenv.Binary(tb, "dockerd")
}
