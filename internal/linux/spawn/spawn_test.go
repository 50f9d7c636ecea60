//go:build linux

package spawn_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

// run starts a shell command and returns what it wrote to its descriptor 3.
func run(t *testing.T, s spawn.Spec, command string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.Path, s.Args, s.Files = "/bin/sh", []string{"sh", "-c", command}, []*os.File{w}
	p, err := spawn.Start(s)
	if err = firstError(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err = firstError(err, p.Err()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestStart_InheritsOnlyWhatIsListed(t *testing.T) {
	t.Setenv("SPAWN_CANARY", "secret")
	leak, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	// As a daemon's own parent may have left it: open and to be inherited.
	if _, err := unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	got := run(t, spawn.Spec{Env: []string{"ONLY=this"}, Dir: "/", Keep: true},
		`exec 4>&-; for f in /proc/self/fd/*; do echo "fd ${f##*/}" >&3; done; echo "canary ${SPAWN_CANARY-none} $ONLY" >&3`)
	for line := range strings.Lines(got) {
		switch line = strings.TrimSpace(line); line {
		// 4 and 10 are the shell's own, opened while it lists.
		case "fd 0", "fd 1", "fd 2", "fd 3", "fd 4", "fd 10", "canary none this":
		default:
			t.Errorf("the process has %q", line)
		}
	}
	if !strings.Contains(got, "canary none this") {
		t.Errorf("environment: %s", got)
	}
}

func TestStart_ChangesIDs(t *testing.T) {
	testenv.Root(t)
	got := run(t, spawn.Spec{Dir: "/", UID: 1_999_000_001, GID: 1_999_000_002}, `echo $(id -u) $(id -g) $(id -G) >&3`)
	if got != "1999000001 1999000002 1999000002" {
		t.Errorf("ids %q", got)
	}
}

func TestStart_MapsIDs(t *testing.T) {
	testenv.Root(t)
	got := run(t, spawn.Spec{Dir: "/", Isolate: true, FirstID: 1_999_000_100, CountIDs: 8}, `echo $(id -u) $$ $(cat /proc/self/uid_map) >&3`)
	if got != "0 1 0 1999000100 8" {
		t.Errorf("id, pid and map: %q", got)
	}
}

// TestStart_ConnectsStreams, and ends what a shell has started with the shell.
func TestStart_ConnectsStreams(t *testing.T) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outRead.Close()
	p, err := spawn.Start(spawn.Spec{
		Path: "/bin/sh", Args: []string{"sh", "-c", "read line; echo \"got $line\"; sleep 60 & wait"}, Dir: "/", Keep: true,
		Stdin: inRead, Stdout: outWrite,
	})
	if err = firstError(err, inRead.Close(), outWrite.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := inWrite.WriteString("word\n"); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("got word\n"))
	if _, err := io.ReadFull(outRead, line); err != nil || string(line) != "got word\n" {
		t.Errorf("%q, %v", line, err)
	}
	p.KillGroup()
	if rest, err := io.ReadAll(outRead); err != nil || len(rest) > 0 { // ends when nobody holds the pipe
		t.Errorf("%q, %v", rest, err)
	}
	if p.Err() == nil {
		t.Error("it ended well")
	}
	p.KillGroup()
	_ = inWrite.Close()
}
