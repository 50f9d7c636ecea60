//go:build linux

package mountns_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/internal/testenv"
)

const enteredName = "mountns-test"

// TestMain is also the process that enters: what Enter does cannot be undone.
func TestMain(m *testing.M) {
	if os.Args[0] == enteredName {
		os.Exit(entered())
	}
	os.Exit(m.Run())
}

func entered() int {
	var r mountns.Root
	err := json.NewDecoder(os.NewFile(3, "root")).Decode(&r)
	if err == nil {
		err = mountns.Enter(r)
	}
	out := os.NewFile(4, "out")
	if err != nil {
		fmt.Fprintln(out, "error:", err)
		return 1
	}
	_ = filepath.WalkDir("/", func(path string, d os.DirEntry, _ error) error {
		if path == "/proc" {
			fmt.Fprintln(out, path)
			return filepath.SkipDir
		}
		fmt.Fprintln(out, path)
		return nil
	})
	for _, path := range []string{"/new", "/etc/new", "/bound/file", "/bound/new"} {
		err := os.WriteFile(path, []byte("x"), 0o600)
		fmt.Fprintln(out, "write", path, err)
	}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err == nil {
		_, err = null.WriteString("x")
	}
	fmt.Fprintln(out, "null", err)
	return 0
}

func enter(t *testing.T, r mountns.Root) string {
	t.Helper()
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := spawn.Start(spawn.Spec{
		Path: "/proc/self/exe", Args: []string{enteredName}, Dir: "/", Files: []*os.File{inRead, outWrite},
		Isolate: true, FirstID: 1_999_000_200, CountIDs: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = inRead.Close()
	_ = outWrite.Close()
	if err := json.NewEncoder(inWrite).Encode(r); err != nil {
		t.Fatal(err)
	}
	_ = inWrite.Close()
	out, err := io.ReadAll(outRead)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Err() // the output says more
	return string(out)
}

func TestEnter_ShowsNothingElse(t *testing.T) {
	testenv.Root(t)
	testenv.Kernel(t, 5, 12)
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	passable(t, source)
	got := enter(t, mountns.Root{
		Dirs:     []string{"/tmp", "/dev/shm"},
		Binds:    []mountns.Bind{{Source: source, Target: "/bound"}, {Source: "/dev/null", Target: "/dev/null", Device: true, Writable: true}},
		Files:    []mountns.File{{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n")}},
		Symlinks: []mountns.Symlink{{Path: "/lib64", Target: "usr/lib64"}},
	})
	want := `/
/bound
/bound/file
/dev
/dev/null
/dev/shm
/etc
/etc/hosts
/lib64
/proc
/tmp
write /new open /new: read-only file system
write /etc/new open /etc/new: read-only file system
write /bound/file open /bound/file: read-only file system
write /bound/new open /bound/new: read-only file system
null <nil>
`
	// A file of an id that is not mapped cannot be written even where the mount
	// could: the kernel may say either.
	got = strings.ReplaceAll(got, "permission denied", "read-only file system")
	if got != want {
		t.Errorf("inside:\n%s\nwant:\n%s", got, want)
	}
}

func TestEnter_RefusesTargetOutside(t *testing.T) {
	testenv.Root(t)
	testenv.Kernel(t, 5, 12)
	got := enter(t, mountns.Root{Binds: []mountns.Bind{{Source: "/dev/null", Target: "/../../escape", Device: true}}})
	if !strings.Contains(got, "outside the root") {
		t.Errorf("got %q", got)
	}
}

// passable lets the process in, whose ids are not the test's.
func passable(t *testing.T, dir string) {
	t.Helper()
	for d := dir; filepath.Base(d) != "tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // as said
			t.Fatal(err)
		}
	}
}
