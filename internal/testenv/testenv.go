package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Root demands effective uid 0.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		unmet(tb, "root", "effective uid is not 0")
	}
}

// PrivilegedLane demands a lane that root alone runs: for what is too heavy for the
// unit lane of somebody who happens to be root.
func PrivilegedLane(tb testing.TB) {
	tb.Helper()
	if !strict(os.Getenv("SANDBOXD_LANE")) {
		tb.Skip("runs in the privileged lanes only")
	}
}

// AllEngines demands the lane that tries all that there is (make test-engines): for
// what takes minutes.
func AllEngines(tb testing.TB) {
	tb.Helper()
	if os.Getenv("SANDBOXD_ENGINES") != "all" {
		tb.Skip("runs with make test-engines only")
	}
}

// Binary demands a program on PATH and returns its path.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		unmet(tb, "binary:"+name, err.Error())
	}
	return path
}

// Cgroup demands root and a cgroup tree, v1 or v2, in which groups can be made.
func Cgroup(tb testing.TB) {
	tb.Helper()
	Root(tb)
	const root = "/sys/fs/cgroup"
	for _, dir := range []string{root, filepath.Join(root, "memory")} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue
		}
		if err := tryDir(dir); err != nil {
			unmet(tb, "cgroup", err.Error())
		}
		return
	}
	unmet(tb, "cgroup", "no cgroup tree at "+root)
}

// Kernel demands a kernel of at least the version.
func Kernel(tb testing.TB, major, minor int) {
	tb.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		unmet(tb, "kernel", err.Error())
		return
	}
	haveMajor, haveMinor, err := parseRelease(string(release))
	if err != nil {
		tb.Fatal(err)
	}
	if haveMajor < major || (haveMajor == major && haveMinor < minor) {
		tb.Skipf("needs Linux %d.%d, have %s", major, minor, strings.TrimSpace(string(release)))
	}
}

// Python demands the Debian interpreter (the one that images.Host takes by
// default) and returns its path. The first python3 on PATH may be another one.
func Python(tb testing.TB) string {
	tb.Helper()
	const path = "/usr/bin/python3"
	if _, err := os.Stat(path); err != nil {
		unmet(tb, "python", err.Error())
	}
	return path
}

// Missing ends a test whose need the caller found unmet itself: a kernel feature,
// say. need is a lower-case name for SANDBOXD_MISSING.
func Missing(tb testing.TB, need, reason string) {
	tb.Helper()
	unmet(tb, need, reason)
}

// unmet ends the test: a failure in a strict lane, a skip elsewhere.
func unmet(tb testing.TB, need, reason string) {
	tb.Helper()
	if strict(os.Getenv("SANDBOXD_LANE")) && !listed(os.Getenv("SANDBOXD_MISSING"), need) {
		tb.Fatalf("need %q is not met: %s", need, reason)
	}
	tb.Skipf("need %q is not met: %s", need, reason)
}

func strict(lane string) bool { return slices.Contains([]string{"root", "e2e", "vm"}, lane) }

func listed(missing, need string) bool {
	return slices.Contains(strings.Split(missing, ","), need)
}

func parseRelease(release string) (major, minor int, err error) {
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return 0, 0, fmt.Errorf("kernel release %q is no version", release)
	}
	return major, minor, nil
}

// tryDir makes a group below dir and removes it.
func tryDir(dir string) error {
	made, err := os.MkdirTemp(dir, "sandboxd-testenv-")
	return errors.Join(err, removeIf(made))
}

func removeIf(path string) error {
	if path == "" {
		return nil
	}
	return os.Remove(path)
}
