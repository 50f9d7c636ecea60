package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

// place is where a daemon lives; it outlives the daemon, so that another can be
// started in it.
type place struct {
	dir, socket, state, temp, config string
}

func newPlace(t *testing.T, config string) place {
	t.Helper()
	// Socket paths are short (unix(7)), which t.TempDir's need not be.
	dir, err := os.MkdirTemp("/tmp", "sandboxd-e2e-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the daemon's place: %v", err)
		}
	})
	// The engine process runs programs as users of their own, below here.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	p := place{dir: dir, socket: filepath.Join(dir, "s"), state: filepath.Join(dir, "state"), temp: filepath.Join(dir, "tmp"), config: filepath.Join(dir, "config.toml")}
	if err := os.Mkdir(p.temp, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// daemon is a running sandboxd.
type daemon struct {
	place
	client *apiclient.Client
	cmd    *exec.Cmd
	ended  chan struct{}
	log    logBuffer
}

// start starts a daemon and waits until it takes runs. It is stopped with the
// test, and its log is shown if the test failed.
func (p place) start(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{place: p, client: apiclient.New(p.socket), ended: make(chan struct{})}
	d.cmd = exec.Command(filepath.Join(bin, "sandboxd"), "--socket", p.socket, "--state-dir", p.state, "--config", p.config)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+p.temp)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in ProcessState
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.stop(t)
		d.client.Close()
		if t.Failed() {
			t.Logf("log of sandboxd:\n%s", d.log.String())
		}
	})
	d.waitReady(t)
	return d
}

func (d *daemon) waitReady(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := d.client.Health(t.Context())
		if err == nil {
			return
		}
		select {
		case <-d.ended:
			t.Fatalf("sandboxd ended: %v\n%s", d.cmd.ProcessState, d.log.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("sandboxd does not get ready: %v\n%s", err, d.log.String())
		}
	}
}

// stop ends the daemon as a service manager does, and by force when it does not
// end within a minute.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		t.Error("sandboxd does not end on SIGTERM")
		d.kill(t)
	}
}

// kill ends the daemon without giving it a chance.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGKILL)
	<-d.ended
}

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal sandboxd: %v", err)
	}
}

// run runs a spec that must get a result.
func (d *daemon) run(t *testing.T, spec sandbox.Spec) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res, err := d.client.Run(ctx, spec)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return res
}

// logBuffer takes a daemon's log while it runs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// solved is a spec whose verdict is passed with two assertions.
func solved() sandbox.Spec {
	return testsSpec("def double(n):\n    return 2 * n\n", "assert double(2) == 4\nassert double(0) == 0\n")
}

func testsSpec(solution, tests string) sandbox.Spec {
	return sandbox.Spec{Solution: &solution, Tests: &tests}
}

func programSpec(text string) sandbox.Spec {
	return sandbox.Spec{Program: &text}
}
