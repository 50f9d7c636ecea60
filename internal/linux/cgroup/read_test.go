//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	const events = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"
	for key, want := range map[string]int64{"oom": 2, "oom_kill": 1, "max": 12} {
		if got, err := parseKey([]byte(events), key); err != nil || got != want {
			t.Errorf("%s: %d, %v", key, got, err)
		}
	}
	for _, bad := range []string{"", "oom_kill", "oom_kill x", "oom_kill 99999999999999999999", "oom_kill_disable 1"} {
		if got, err := parseKey([]byte(bad), "oom_kill"); err == nil {
			t.Errorf("%q: %d", bad, got)
		}
	}
}

func TestParseCPUStat(t *testing.T) {
	got, err := parseCPUStat([]byte("usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\n"))
	if want := (CPU{TotalMicros: 30, UserMicros: 20, SystemMicros: 10}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseCPUStat([]byte("usage_usec 30\n")); err == nil {
		t.Error("a split was made up")
	}
}

func TestParsePids(t *testing.T) {
	got, err := parsePids([]byte("12\n7\n12\n"))
	if err != nil || !slices.Equal(got, []int{12, 7, 12}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parsePids([]byte("12\nx\n")); err == nil {
		t.Error("x was taken for a process")
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("oom_kill 1\nusage_usec 2\n3\n"))
	f.Add([]byte("max\n-1"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseKey(data, "oom_kill")
		_, _ = parseCPUStat(data)
		_, _ = parsePids(data)
		_, _ = parseInt(data)
	})
}

// fakeTree writes files below a directory; links start with "->".
func fakeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNew_TellsVersions(t *testing.T) {
	for file, want := range map[string]int{"cgroup.controllers": 2, "memory/cgroup.procs": 1} {
		m, err := New(Config{Root: fakeTree(t, map[string]string{file: ""}), Parent: "/x"})
		if err != nil || m.Version() != want {
			t.Errorf("%s: %v, %v", file, m, err)
		}
	}
}

func TestNew_RefusesParentsOfOthers(t *testing.T) {
	root := fakeTree(t, nil)
	for _, parent := range []string{"", "/", "relative", "/a/../b", "/a/", "//a"} {
		if _, err := New(Config{Root: root, Parent: parent}); err == nil {
			t.Errorf("parent %q was taken", parent)
		}
	}
	if _, err := New(Config{Root: "sys", Parent: "/a"}); err == nil {
		t.Error("a relative root was taken")
	}
}

func TestV1_CoMountedControllersAreOneDirectory(t *testing.T) {
	root := fakeTree(t, map[string]string{
		"memory/cgroup.procs": "", "pids/cgroup.procs": "", "cpu,cpuacct/cgroup.procs": "",
		"cpu": "->cpu,cpuacct", "cpuacct": "->cpu,cpuacct",
	})
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	tree := v1{root: real, parent: "/p"}
	got, err := tree.dirs("g", Limits{CPUWeight: 100})
	want := []string{real + "/cpu,cpuacct/p/g", real + "/memory/p/g", real + "/pids/p/g"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCreate_RefusesMissingController(t *testing.T) {
	// A plain directory where a mount should be: nothing may be made in it.
	root := fakeTree(t, map[string]string{"memory/cgroup.procs": "", "pids/other": "", "cpuacct/cgroup.procs": ""})
	m, err := New(Config{Root: root, Parent: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create("g", Limits{MemoryBytes: 1, Pids: 1}); err == nil || !strings.Contains(err.Error(), "pids is not mounted") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "memory/p")); err == nil {
		t.Error("a directory was made")
	}
}

func TestCreate_RefusesBadInput(t *testing.T) {
	m, err := New(Config{Root: fakeTree(t, nil), Parent: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	good := Limits{MemoryBytes: 1 << 20, Pids: 4}
	for _, name := range []string{"", ".", "..", "a/b", "../a", "cgroup.procs", "A", strings.Repeat("a", 65)} {
		if _, err := m.Create(name, good); err == nil || !strings.Contains(err.Error(), "bad name") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, l := range []Limits{
		{},
		{Pids: 1},
		{MemoryBytes: 1},
		{MemoryBytes: 1, Pids: 1, CPUQuotaMicros: 999},
		{MemoryBytes: 1, Pids: 1, CPUWeight: 10_001},
		{MemoryBytes: 1, Pids: 1, CPUWeight: -1},
	} {
		if err := l.validate(); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
}

func TestBelow_ChildrenFirst(t *testing.T) {
	root := fakeTree(t, map[string]string{"a/b/f": "", "a/f": "", "c/f": "", "f": ""})
	got, err := below(root)
	want := []string{root + "/a/b", root + "/a", root + "/c"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := below(root + "/nowhere"); err != nil || got != nil {
		t.Errorf("missing parent: %v, %v", got, err)
	}
}

func TestV1Shares_DefaultToDefault(t *testing.T) {
	for weight, want := range map[int64]uint64{100: 1024, 1: 10, 10_000: 102_400} {
		if got := v1Shares(weight); got != want {
			t.Errorf("weight %d: %d shares, want %d", weight, got, want)
		}
	}
}
