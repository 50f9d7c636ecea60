//go:build linux

package pidfd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// start runs a shell script as a child that only its pidfd reaps.
func start(t *testing.T, script string) (*File, int) {
	t.Helper()
	testenv.Kernel(t, 5, 4)
	process, err := os.StartProcess(testenv.Binary(t, "sh"), []string{"sh", "-c", script}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	pid := process.Pid
	f, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Release(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Signal(unix.SIGKILL); err == nil {
			_ = f.Wait(context.WithoutCancel(t.Context()))
			_, _ = f.Reap()
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, pid
}

func TestFile_WaitsAndReaps(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 7":         {Code: 7},
		"kill -TERM $$":  {Code: -1, Signal: unix.SIGTERM},
		"sleep .1":       {},
		"kill -KILL $$;": {Code: -1, Signal: unix.SIGKILL},
	} {
		f, pid := start(t, script)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.Wait(ctx); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		got, err := f.Reap()
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", script, got, err, want)
		}
		if err := f.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: signal to the reaped: %v", script, err)
		}
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: process is still there: %v", script, err)
		}
	}
}

func TestFile_WaitEndsWithContext(t *testing.T) {
	f, _ := start(t, "exec sleep 60")
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, cause)
	defer cancel()
	if err := f.Wait(ctx); !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	if _, err := f.Reap(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("reap of the running: %v", err)
	}
	if err := f.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// A wait that was given up leaves nothing behind for the next.
	if err := f.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit, err := f.Reap(); err != nil || exit.Signal != unix.SIGKILL {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestFile_SignalReachesOnlyItsProcess(t *testing.T) {
	f, _ := start(t, "exec sleep 60")
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	if err := f.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

func TestReap_RefusesForeignProcess(t *testing.T) {
	f, err := Open(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Reap(); !errors.Is(err, unix.ECHILD) {
		t.Errorf("got %v", err)
	}
}

func TestClose_WakesWaiter(t *testing.T) {
	f, err := Open(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- f.Wait(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestReadExit_OfAZombieThatIsNotOurs(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 7":        {Code: 7},
		"kill -TERM $$": {Code: -1, Signal: unix.SIGTERM},
	} {
		f, pid := start(t, script)
		stat, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		defer stat.Close()
		if err := f.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if state, err := f.State(); err != nil || state != 'Z' {
			t.Errorf("%s: state %c, %v", script, state, err)
		}
		if dying, err := f.Dying(); err != nil || !dying {
			t.Errorf("%s: dying %t, %v", script, dying, err)
		}
		if exit, err := ReadExit(int(stat.Fd())); err != nil || exit != want {
			t.Errorf("%s: %+v, %v", script, exit, err)
		}
		if _, err := f.Reap(); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadExit(int(stat.Fd())); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: once reaped: %v", script, err)
		}
		if state, err := f.State(); err != nil || state != 'X' {
			t.Errorf("%s: once reaped: state %c, %v", script, state, err)
		}
	}
}

func TestState_OfTheStopped(t *testing.T) {
	f, pid := start(t, "exec sleep 60")
	if dying, err := f.Dying(); err != nil || dying {
		t.Errorf("dying %t, %v", dying, err)
	}
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	var state byte
	for range 100 { // a signal takes a moment
		var err error
		if state, err = f.State(); err != nil {
			t.Fatal(err)
		}
		if state == 'T' {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if state != 'T' {
		t.Errorf("state %c of %d", state, pid)
	}
	stat, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer stat.Close()
	if _, err := ReadExit(int(stat.Fd())); err == nil {
		t.Error("a process that lives has ended")
	}
}
