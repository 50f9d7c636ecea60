package docker_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

func TestEngine_LeavesNothing(t *testing.T) {
	on := theEngine(t)
	e := newEngine(t, docker.Config{})
	const idle = 4 // connections that the client may keep
	descriptors := -1
	for i, text := range []string{"pass", "import os; os.abort()", "import os; os._exit(3)", "while True: print('x' * 4000)", "pass", "pass", "pass"} {
		sb, err := e.Create(t.Context(), plan(sandbox.DefaultLimits()))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, sandbox.DefaultLimits())).Run()
		}()
		if i == 3 {
			time.Sleep(50 * time.Millisecond) // destroyed in the middle
		} else {
			<-done
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		<-done
		if left := on.Containers(t); len(left) > 0 {
			t.Errorf("after %q: %s", text, strings.Join(left, "\n"))
		}
		open, _ := os.ReadDir("/proc/self/fd")
		if descriptors < 0 {
			descriptors = len(open)
		}
		if len(open) > descriptors+idle {
			t.Errorf("after %q: %d descriptors are open, %d were", text, len(open), descriptors)
		}
	}
}

// TestEngine_ReapsWhatADeadDaemonLeft, and nothing of another's.
func TestEngine_ReapsWhatADeadDaemonLeft(t *testing.T) {
	on := theEngine(t)
	dead := newEngine(t, docker.Config{})
	sb, err := dead.Create(t.Context(), plan(sandbox.DefaultLimits()))
	if err != nil {
		t.Fatal(err)
	}
	other := newEngine(t, docker.Config{Owner: "00000000fffffff1"})
	others, err := other.Create(t.Context(), plan(sandbox.DefaultLimits()))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(on.Containers(t)); n != 2 {
		t.Fatalf("%d containers live", n)
	}
	next := newEngine(t, docker.Config{})
	if err := next.Reap(t.Context()); err != nil {
		t.Error(err)
	}
	left := on.Containers(t)
	if len(left) != 1 || !strings.HasPrefix(left[0], "/sandboxd-00000000-") {
		t.Errorf("left: %v", left)
	}
	if err := sb.Destroy(t.Context()); err != nil { // the dead one's own books
		t.Error(err)
	}
	if err := others.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if end, err := runOnce(t.Context(), next, plan(sandbox.DefaultLimits()), "print('well')"); err != nil || end.Stdout.Text() != "well\n" {
		t.Errorf("%q, %v", end.Stdout.Text(), err)
	}
}

// TestPool_ServesWithTheRunsOwnLimits: what was made ahead with default limits is
// handed out with those of the run, and the kernel holds them.
func TestPool_ServesWithTheRunsOwnLimits(t *testing.T) {
	on := theEngine(t)
	e := newEngine(t, docker.Config{Ready: 2})
	if _, err := runOnce(t.Context(), e, plan(sandbox.DefaultLimits()), "pass"); err != nil {
		t.Fatal(err)
	}
	waitReady(t, e, 2)
	l := sandbox.DefaultLimits()
	l.OpenFiles, l.MemoryBytes = 32, 64<<20
	sb, err := e.Create(t.Context(), plan(l))
	if err != nil {
		t.Fatal(err)
	}
	if !sb.Making().Ready {
		t.Error("it was made for this run")
	}
	text := "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True); resource.setrlimit(resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)); b = bytearray(50 << 20); c = open('/tmp/x', 'wb'); [c.write(b'x' * 65536) for _ in range(250)]; d = open('/dev/shm/x', 'wb'); [d.write(b'x' * 65536) for _ in range(250)]"
	end, err := sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
	if err != nil || !strings.Contains(end.Stdout.Text(), "(32, 32)") {
		t.Errorf("%q, %v", end.Stdout.Text(), err)
	}
	facts, err := sb.Wait(t.Context())
	if err != nil || facts.OOMKills == 0 {
		t.Errorf("82 MiB within 64 MiB: %+v, %v", facts, err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := on.Containers(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func waitReady(t testing.TB, e *docker.Engine, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); e.Stats().Ready < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are ready", e.Stats().Ready)
		}
	}
}

func TestProbe_TellsWhatIsMissing(t *testing.T) {
	theEngine(t)
	host, err := newEngine(t, docker.Config{Host: "unix:///nowhere/docker.sock"}).Probe(t.Context())
	if err != nil || host.Usable || !strings.Contains(host.Reason, "/nowhere/docker.sock") {
		t.Errorf("%v, usable %v, %q", err, host.Usable, host.Reason)
	}
	bare := copyOfHost(t)
	bare.Name = "host"
	for _, c := range []struct {
		cfg  docker.Config
		want string
	}{
		{docker.Config{Runtime: "kata"}, "none of that name"},
		{docker.Config{DockerImage: "nobody/has:it"}, "does not have it"},
		{docker.Config{Image: bare}, "no image"},
	} {
		s, err := newEngine(t, c.cfg).Probe(t.Context())
		if err != nil || s.Usable || !strings.Contains(s.Reason, c.want) {
			t.Errorf("%v, usable %v, %q, want %q", err, s.Usable, s.Reason, c.want)
		}
		if mend := s.Layer(sandbox.LayerPIDNS).Mend; mend == "" {
			t.Errorf("%s: no mend", c.want)
		}
	}
}

// TestProbe_DeclaresWhatIsLacking: each missing layer has its reason, and all the
// others hold.
func TestProbe_DeclaresWhatIsLacking(t *testing.T) {
	s, err := newEngine(t, docker.Config{}).Probe(t.Context())
	if err != nil || !s.Usable {
		t.Fatalf("%v, %s", err, s.Reason)
	}
	for _, r := range s.Layers {
		lacking := r.Layer == sandbox.LayerUserNS
		if (r.State == sandbox.LayerHeld) == lacking && r.Layer != sandbox.LayerLandlock || lacking && r.Mend == "" {
			t.Errorf("layer %s is %s: %s", r.Layer, r.State, r.Reason)
		}
	}
}
