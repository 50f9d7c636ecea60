package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

// DockerEngine is a Docker Engine of the tests' own: with directories, a socket and
// a cgroup that no other has. Its containerd is a service beside it, as packages
// have it.
type DockerEngine struct {
	Socket string

	dir        string
	args       []string
	parent     string
	remap      bool
	containerd *service
	dockerd    *service
}

// A user that every machine has, and ids for its containers that nobody else has.
const (
	remapUser = "daemon"
	remapIDs  = remapUser + ":1700000000:65536\n"
)

// inOwnMounts starts a program where the machine's lists of ids (subuid(5)) are
// others.
const inOwnMounts = `cd "$1"; shift; mount --bind subids /etc/subuid; mount --bind subids /etc/subgid; exec "$@"`

// service is a program that runs until it is told to end.
type service struct {
	log  bytes.Buffer
	cmd  *exec.Cmd
	done chan struct{}
}

func startService(name string, args ...string) (*service, error) {
	s := &service{cmd: exec.Command(name, args...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	return s, nil
}

// await returns when the service can be spoken to, or says why it cannot.
func (s *service) await(answers func() bool) error {
	for deadline := time.Now().Add(engineWait); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.done:
			text := s.log.Bytes()
			return fmt.Errorf("%s does not start here: %s", s.cmd.Args[0], text[max(0, len(text)-2000):])
		default:
		}
		if answers() {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s does not answer", s.cmd.Args[0]), s.end(os.Kill))
		}
	}
}

func (s *service) end(how os.Signal) error {
	if s == nil { // it never started
		return nil
	}
	if err := s.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(engineWait):
		return errors.Join(fmt.Errorf("%s did not end", s.cmd.Args[0]), s.cmd.Process.Kill())
	}
}

// engineWait is how long an Engine may take to start, and to stop.
const engineWait = 30 * time.Second

// StartDockerEngine starts one for a test, which may end it, and stops it when the
// test has ended. With remap, users of its containers are others on this machine.
func StartDockerEngine(tb testing.TB, remap bool) *DockerEngine {
	tb.Helper()
	NeedDockerd(tb)
	dir, err := os.MkdirTemp("", "sbx-docker-") //nolint:usetesting // a short path
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the root of containers passes through
		tb.Fatal(err)
	}
	e, err := NewDockerEngine(dir, remap)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// NewDockerEngine starts one in dir, which must be below a short path: the address
// of a socket has 107 bytes. With remap, users of its containers are others on this
// machine, and dir has to let them pass.
func NewDockerEngine(dir string, remap bool) (*DockerEngine, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	e := &DockerEngine{
		dir: dir, Socket: in("docker.sock"), parent: fmt.Sprintf("/sandboxd-docker-test-%d-%d", os.Getpid(), enginesMade.Add(1)),
	}
	e.args = []string{
		"--config-file", in("daemon.json"), "--containerd", in("containerd.sock"), "--data-root", in("data"), "--exec-root", in("exec"),
		"--pidfile", in("docker.pid"), "--host", "unix://" + e.Socket, "--cgroup-parent", e.parent,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
	}
	if remap {
		e.args, e.remap = append(e.args, "--userns-remap", remapUser), true
	}
	if err := os.WriteFile(in("daemon.json"), []byte(engineConfig), 0o600); err != nil {
		return nil, err
	}
	err := e.startContainerd()
	if err == nil {
		err = e.Start()
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// engineConfig names the runtimes that an Engine has beside runc, installed or not.
const engineConfig = `{"runtimes": {
	"crun": {"path": "/usr/bin/crun"},
	"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=ptrace", "--network=none"]}
}}`

var enginesMade atomic.Int64

func (e *DockerEngine) startContainerd() (err error) {
	config, socket := filepath.Join(e.dir, "containerd.toml"), filepath.Join(e.dir, "containerd.sock")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		filepath.Join(e.dir, "containerd"), filepath.Join(e.dir, "shims"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	command := []string{"containerd", "--config", config}
	if e.remap {
		if err := os.WriteFile(filepath.Join(e.dir, "subids"), []byte(remapIDs), 0o644); err != nil { //nolint:gosec // as the list is
			return err
		}
		command = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", inOwnMounts, "sh", e.dir}, command...)
	}
	if e.containerd, err = startService(command[0], command[1:]...); err != nil {
		return err
	}
	return e.containerd.await(func() bool {
		conn, err := net.Dial("unix", socket)
		return err == nil && conn.Close() == nil
	})
}

// Start starts it, again after Kill.
func (e *DockerEngine) Start() (err error) {
	_ = os.Remove(filepath.Join(e.dir, "docker.pid")) // of one that was killed
	command := append([]string{"dockerd"}, e.args...)
	if e.remap {
		command = append([]string{"nsenter", "--mount", "--target", strconv.Itoa(e.containerd.cmd.Process.Pid), "--wd=/"}, command...)
	}
	if e.dockerd, err = startService(command[0], command[1:]...); err != nil {
		return err
	}
	return e.dockerd.await(e.answers)
}

func (e *DockerEngine) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	status, err := e.Ask(ctx, http.MethodGet, "/_ping", nil, nil, nil)
	return err == nil && status == http.StatusOK
}

// Ask asks the Engine by itself, so that what an engine under test says of it is not
// taken for true. The answer is JSON for into, which may be nil.
func (e *DockerEngine) Ask(ctx context.Context, method, path string, query url.Values, body io.Reader, into any) (status int, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://engine/v1.41"+path+"?"+query.Encode(), body)
	if err != nil {
		return 0, err
	}
	r, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	if into != nil {
		err = json.NewDecoder(r.Body).Decode(into)
	} else {
		_, err = io.Copy(io.Discard, r.Body)
	}
	return r.StatusCode, errors.Join(err, r.Body.Close())
}

// Containers lists the names of all that the Engine has.
func (e *DockerEngine) Containers(tb testing.TB) []string {
	tb.Helper()
	var list []struct{ Names []string }
	if _, err := e.Ask(tb.Context(), http.MethodGet, "/containers/json", url.Values{"all": {"1"}}, nil, &list); err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Names...)
	}
	return names
}

// Import gives the Engine a small Debian with Python, by a name and with changes.
func (e *DockerEngine) Import(tb testing.TB, name string, changes ...string) {
	tb.Helper()
	archive, err := os.Open(BaseArchive(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer archive.Close()
	query := url.Values{"fromSrc": {"-"}, "repo": {name}, "changes": changes}
	if status, err := e.Ask(tb.Context(), http.MethodPost, "/images/create", query, archive, nil); err != nil || status != http.StatusOK {
		tb.Fatalf("import %s: status %d, %v", name, status, err)
	}
}

// Kill ends it as a crash does.
func (e *DockerEngine) Kill() error { return e.dockerd.end(os.Kill) }

// Halt ends it as its service manager does: it ends its containers before.
func (e *DockerEngine) Halt() error { return e.dockerd.end(os.Interrupt) }

// Stop ends it and removes what it had.
func (e *DockerEngine) Stop() error {
	errs := []error{e.Halt(), e.containerd.end(os.Interrupt)}
	groups, err := cgroup.New(cgroup.Config{Root: cgroup.DefaultRoot, Parent: e.parent})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	return errors.Join(append(errs, e.endShims(), groups.Reap(ctx), groups.Close(), e.unmount(), os.RemoveAll(e.dir))...)
}

// endShims ends what watched over containers that one which was killed has lost.
// They name its socket.
func (e *DockerEngine) endShims() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		args, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err != nil || !bytes.Contains(args, []byte("\x00"+e.dir+"/")) {
			continue
		}
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}
		if !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unmount takes away what one that was killed has left mounted below its directory.
func (e *DockerEngine) unmount() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			if out, err := exec.Command("umount", fields[4]).CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("%w: %s", err, out))
			}
		}
	}
	return errors.Join(errs...)
}

// NeedDockerd demands what a Docker Engine of the tests' own takes, and a lane that
// is for that: starting one and giving it an image takes seconds.
func NeedDockerd(tb testing.TB) {
	tb.Helper()
	testenv.PrivilegedLane(tb)
	testenv.Cgroup(tb)
	testenv.Binary(tb, "dockerd")
	testenv.Binary(tb, "containerd")
}
