//go:build linux

package rlimit

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

func TestNumbers_MatchKernel(t *testing.T) {
	for name, want := range map[string]int{
		"cpu": unix.RLIMIT_CPU, "fsize": unix.RLIMIT_FSIZE, "data": unix.RLIMIT_DATA,
		"stack": unix.RLIMIT_STACK, "core": unix.RLIMIT_CORE, "rss": unix.RLIMIT_RSS,
		"nproc": unix.RLIMIT_NPROC, "nofile": unix.RLIMIT_NOFILE, "memlock": unix.RLIMIT_MEMLOCK,
		"as": unix.RLIMIT_AS, "locks": unix.RLIMIT_LOCKS, "sigpending": unix.RLIMIT_SIGPENDING,
		"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "rtprio": unix.RLIMIT_RTPRIO,
		"rttime": unix.RLIMIT_RTTIME,
	} {
		got, ok := Number(name)
		if !ok || got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, want)
		}
		if back, ok := Name(want); !ok || back != name {
			t.Errorf("number %d: %q, want %q", want, back, name)
		}
	}
}

// TestNames_CoverProc checks that the kernel knows no limit that we do not name.
func TestNames_CoverProc(t *testing.T) {
	f, err := os.Open("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "Max ") {
			lines++
		}
	}
	if lines != len(Names()) {
		t.Errorf("the kernel lists %d limits, we name %d", lines, len(Names()))
	}
}

func TestLookup_RefusesUnknown(t *testing.T) {
	if _, ok := Number("CPU"); ok {
		t.Error("upper case was taken")
	}
	for _, number := range []int{-1, len(names)} {
		if _, ok := Name(number); ok {
			t.Errorf("number %d has a name", number)
		}
	}
}

func TestSet_LimitsAnotherProcess(t *testing.T) {
	cmd := exec.Command(testenv.Binary(t, "sleep"), "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := Set(cmd.Process.Pid, unix.RLIMIT_NOFILE, 32, 64); err != nil {
		t.Fatal(err)
	}
	var got unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &got); err != nil || got.Cur != 32 || got.Max != 64 {
		t.Errorf("%+v, %v", got, err)
	}
	// A lower limit that is there stays, whoever may raise it.
	if err := Set(cmd.Process.Pid, unix.RLIMIT_NOFILE, 1<<30, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &got); err != nil || got.Max > 1<<30 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, pid := range []int{0, -1} {
		if err := Set(pid, unix.RLIMIT_NOFILE, 1, 1); err == nil {
			t.Errorf("process %d was limited", pid)
		}
	}
}
