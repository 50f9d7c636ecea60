//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

const treeVariable = "LANDLOCK_TEST_TREE"

// TestMain restricts itself to two directories when re-executed, and prints what
// the kernel then says.
func TestMain(m *testing.M) {
	if dir := os.Getenv(treeVariable); dir != "" {
		runtime.LockOSThread()
		if err := restricted(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// restricted checks every answer on this one thread.
func restricted(dir string) error {
	abi, err := ABI()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	ro, rw := filepath.Join(dir, "ro"), filepath.Join(dir, "rw")
	if err := Restrict(For(abi, []string{ro, "/dev/null"}, []string{rw})); err != nil {
		return err
	}
	var errs []error
	want := func(what string, got, want error) {
		if !errors.Is(got, want) {
			errs = append(errs, fmt.Errorf("%s: %w, want %w", what, got, want))
		}
	}
	_, err = os.ReadFile(filepath.Join(ro, "file"))
	want("read below ro", err, nil)
	_, err = os.ReadFile("/dev/null")
	want("read a single file", err, nil)
	want("write below rw", os.WriteFile(filepath.Join(rw, "new"), nil, 0o600), nil)
	want("rename below rw", os.Rename(filepath.Join(rw, "new"), filepath.Join(rw, "newer")), nil)
	want("write below ro", os.WriteFile(filepath.Join(ro, "file"), nil, 0o600), unix.EACCES)
	want("make below ro", os.Mkdir(filepath.Join(ro, "d"), 0o700), unix.EACCES)
	want("remove below ro", os.Remove(filepath.Join(ro, "file")), unix.EACCES)
	_, err = os.ReadFile(filepath.Join(dir, "outside"))
	want("read elsewhere", err, unix.EACCES)
	_, err = os.ReadDir("/etc")
	want("list elsewhere", err, unix.EACCES)
	want("execute from rw", unix.Exec(filepath.Join(rw, "program"), nil, nil), unix.EACCES)
	if abi >= 3 {
		want("truncate below ro", os.Truncate(filepath.Join(ro, "file"), 0), unix.EACCES)
	}
	if abi >= 4 {
		want("bind", bindTCP(), unix.EACCES)
	}
	if abi >= 6 {
		// The parent is outside of the domain.
		want("signal outside", unix.Kill(os.Getppid(), 0), unix.EPERM)
	}
	return errors.Join(errs...)
}

func bindTCP() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())})
}

func TestRestrict_KernelHoldsRuleset(t *testing.T) {
	testenv.Kernel(t, 5, 13)
	abi, err := ABI()
	if err != nil {
		t.Fatal(err)
	}
	if abi == 0 {
		testenv.Missing(t, "landlock", "the kernel has no Landlock")
	}
	dir := t.TempDir()
	for _, d := range []string{"ro", "rw"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"ro/file", "outside", "rw/program"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("#!/bin/true\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{treeVariable + "=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("ABI %d: %v\n%s", abi, err, out)
	}
}

func TestFor_MasksByABI(t *testing.T) {
	for _, c := range []struct {
		abi         int
		handled     uint64
		net, scoped uint64
	}{
		{1, 1<<13 - 1, 0, 0},
		{2, 1<<14 - 1, 0, 0},
		{3, 1<<15 - 1, 0, 0},
		{4, 1<<15 - 1, 3, 0},
		{5, 1<<16 - 1, 3, 0},
		{6, 1<<16 - 1, 3, 3},
		{7, 1<<16 - 1, 3, 3},
		{99, 1<<16 - 1, 3, 3},
	} {
		r := For(c.abi, []string{"/usr"}, []string{"/tmp"})
		if r.HandledFS != c.handled || r.HandledNet != c.net || r.Scoped != c.scoped {
			t.Errorf("ABI %d: fs %#x net %#x scoped %#x", c.abi, r.HandledFS, r.HandledNet, r.Scoped)
		}
		for _, rule := range r.Rules {
			if rule.Access&^r.HandledFS != 0 || rule.Access == 0 {
				t.Errorf("ABI %d: rule %+v has rights that are not handled", c.abi, rule)
			}
		}
		if write := r.Rules[0].Access &^ readOnlyRights; write != 0 {
			t.Errorf("ABI %d: read-only rule has %#x", c.abi, write)
		}
		if r.Rules[1].Access&(FSExecute|FSMakeChar|FSMakeBlock|FSIoctlDev) != 0 {
			t.Errorf("ABI %d: writable rule has %#x", c.abi, r.Rules[1].Access)
		}
	}
}

func TestFor_NothingWithoutLandlock(t *testing.T) {
	r := For(0, []string{"/usr"}, nil)
	if r.ABI != 0 || r.HandledFS != 0 || len(r.Rules) != 0 {
		t.Errorf("got %+v", r)
	}
	if err := Restrict(r); err == nil || !strings.Contains(err.Error(), "no Landlock") {
		t.Errorf("an empty ruleset passed for a restriction: %v", err)
	}
}
