//go:build linux

package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// roleVariable makes the re-executed test binary the process at the other end:
// it says hello on descriptor 3, waits for a byte on descriptor 5, and then does
// what the shell script in its argument says.
const roleVariable = "STDIO_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		_, _ = os.NewFile(3, "status").WriteString("hello")
		_, _ = io.ReadFull(os.NewFile(5, "tell"), make([]byte, 1))
		err := unix.Exec("/bin/sh", []string{"sh", "-c", os.Args[1]}, nil)
		panic(err)
	}
	os.Exit(m.Run())
}

// start starts a process that will do what script says once it is told to.
func start(t *testing.T, script string) (*Streams, *exec.Cmd) {
	t.Helper()
	testenv.Binary(t, "sh")
	s, far, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := make([]*os.File, len(far))
	for i, fd := range far {
		files[i] = os.NewFile(uintptr(fd), "far")
		defer files[i].Close()
	}
	cmd := exec.Command(self, script)
	cmd.Env = []string{roleVariable + "=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[1], files[2], files[3]
	cmd.ExtraFiles = []*os.File{files[0], files[4], files[5]}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	buf := make([]byte, 64)
	n, pid, err := s.Hello(buf)
	if err != nil || string(buf[:n]) != "hello" || pid != cmd.Process.Pid {
		t.Fatalf("hello: %q from %d, %v; want %d", buf[:n], pid, err, cmd.Process.Pid)
	}
	if err := s.Hold(pid); err != nil {
		t.Fatal(err)
	}
	return s, cmd
}

// heardAll listens to the end.
func heardAll(t *testing.T, s *Streams, patience time.Duration) map[Source]string {
	t.Helper()
	got := map[Source]string{}
	buf := make([]byte, 4096)
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		from, n, err := s.Listen(buf, patience)
		if err != nil {
			t.Fatal(err)
		}
		if from == Ended {
			return got
		}
		if from >= 0 {
			got[from] += string(buf[:n])
		}
	}
	t.Fatal("the end was not heard")
	return nil
}

func TestStreams_HearEverythingThenTheEnd(t *testing.T) {
	for _, patience := range []time.Duration{0, 5 * time.Millisecond, time.Hour} {
		s, _ := start(t, `cat; echo out; echo err >&2; echo report >&4; head -c 50000 /dev/zero | tr '\0' x; exit 7`)
		if err := s.Input("input "); err != nil {
			t.Fatal(err)
		}
		if err := s.Tell([]byte("!")); err != nil {
			t.Fatal(err)
		}
		got := heardAll(t, s, patience)
		want := map[Source]string{Stdout: "input out\n" + strings.Repeat("x", 50_000), Stderr: "err\n", Report: "report\n"}
		for source, text := range want {
			if got[source] != text {
				t.Errorf("patience %v: stream %d: %d bytes, want %d", patience, source, len(got[source]), len(text))
			}
		}
		if exit, err := s.Exit(); err != nil || exit.Code != 7 || exit.Signal != 0 {
			t.Errorf("%+v, %v", exit, err)
		}
	}
}

func TestStreams_ReadAFloodWhateverThePatience(t *testing.T) {
	s, _ := start(t, `head -c 3000000 /dev/zero`)
	if err := s.Tell([]byte("!")); err != nil {
		t.Fatal(err)
	}
	if got := heardAll(t, s, 5*time.Millisecond); len(got[Stdout]) != 3_000_000 {
		t.Errorf("%d bytes", len(got[Stdout]))
	}
}

func TestStreams_TellMoreThanThePipeHolds(t *testing.T) {
	s, _ := start(t, `wc -c <&5`)
	// One pipe, twice: the second is appended to what waits.
	for range 2 {
		if err := s.Tell(bytes.Repeat([]byte("x"), 500_000)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // wc reads to the end of the pipe
		time.Sleep(300 * time.Millisecond)
		_ = s.Kill()
	}()
	heardAll(t, s, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.untold) != 0 {
		t.Errorf("%d bytes were not told", len(s.untold))
	}
}

func TestStreams_TellNobody(t *testing.T) {
	s, _ := start(t, `exec 5<&-; sleep .2`)
	if err := s.Tell([]byte("!")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := s.Tell(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Error(err)
	}
	heardAll(t, s, 0)
}

func TestStreams_TellHowItEnded(t *testing.T) {
	for script, want := range map[string]struct {
		code   int
		signal unix.Signal
	}{"exit 0": {0, 0}, "exit 255": {255, 0}, "kill -TERM $$": {-1, unix.SIGTERM}, "kill -KILL $$": {-1, unix.SIGKILL}} {
		s, cmd := start(t, script)
		if err := s.Tell([]byte("!")); err != nil {
			t.Fatal(err)
		}
		heardAll(t, s, 0)
		exit, err := s.Exit()
		if err != nil || exit.Code != want.code || exit.Signal != want.signal {
			t.Errorf("%s: %+v, %v", script, exit, err)
		}
		_ = cmd.Wait()
		if _, err := s.Exit(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: once reaped: %v", script, err)
		}
	}
}

func TestStreams_TellTheMemory(t *testing.T) {
	s, _ := start(t, `sleep 60`)
	if bytes, err := s.MemoryBytes(); err != nil || bytes < 64<<10 || bytes > 64<<20 {
		t.Errorf("%d, %v", bytes, err)
	}
}

func TestStreams_InputIsFinal(t *testing.T) {
	s, _ := start(t, `echo more >&0 || echo refused`)
	if err := errors.Join(s.Input("given"), s.Tell([]byte("!"))); err != nil {
		t.Fatal(err)
	}
	if got := heardAll(t, s, 0); !strings.Contains(got[Stdout], "refused") {
		t.Errorf("%v", got)
	}
}

func TestStreams_CloseEndsListen(t *testing.T) {
	s, _ := start(t, `sleep 60`)
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Listen(make([]byte, 64), 0)
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(s.Kill(), s.Tell([]byte("x"))); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
