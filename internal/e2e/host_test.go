package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// process is one process, told from a later one with the same number by its
// start time.
type process struct {
	pid   int
	start string
}

// family lists a process's descendants.
func family(t *testing.T, root int) map[process]bool {
	t.Helper()
	parents, starts := map[int]int{}, map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, start, ok := statOf(pid); ok {
			parents[pid], starts[pid] = parent, start
		}
	}
	found := map[process]bool{}
	for pid := range parents {
		for up := parents[pid]; up != 0; up = parents[up] {
			if up == root {
				found[process{pid, starts[pid]}] = true
				break
			}
		}
	}
	return found
}

// statOf reads a process's parent and start time (proc_pid_stat(5)).
func statOf(pid int) (parent int, start string, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	// The name is in parentheses and may hold any bytes.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err == nil
}

func alive(p process) bool {
	_, start, ok := statOf(p.pid)
	return ok && start == p.start
}

// cgroupsOf lists the directories of cgroups below the parents that a daemon's
// descendants are in: other daemons of this machine have others.
func cgroupsOf(t *testing.T, processes map[process]bool) map[string]bool {
	t.Helper()
	parents := map[string]bool{}
	for p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(string(text)) {
			if parts := strings.Split(line, "/"); len(parts) > 1 && strings.HasPrefix(parts[1], "sandboxd") {
				parents[strings.TrimSpace(parts[1])] = true
			}
		}
	}
	if len(parents) == 0 {
		t.Fatal("no descendant of the daemon is in a cgroup of its own")
	}
	return cgroupsBelow(t, parents)
}

func cgroupsBelow(t *testing.T, parents map[string]bool) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a group may be gone before it is read
		}
		for part := range strings.SplitSeq(path, "/") {
			if parents[part] {
				found[path] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// existing lists those of paths that are there, and hold the given text.
func existing(paths map[string]bool, text string) []string {
	var left []string
	for p := range paths {
		if _, err := os.Lstat(p); err == nil && strings.Contains(p, text) {
			left = append(left, p)
		}
	}
	return left
}

// newSince lists what of now was not there before.
func newSince(now, before map[string]bool) map[string]bool {
	fresh := maps.Clone(now)
	for k := range before {
		delete(fresh, k)
	}
	return fresh
}

// mountsNow lists the mounts that this namespace has.
func mountsNow(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		found[line] = true
	}
	return found
}

// filesIn lists everything below a directory.
func filesIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		// The image store's index is written when its daemon stops, and is to stay.
		if err == nil && path != dir && !strings.HasSuffix(path, "/images/index.json") {
			found[path] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// eventually waits up to ten seconds for what is in the air to come down; left
// says what still is there.
func eventually(t *testing.T, what string, left func() []string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		rest := left()
		if len(rest) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left over: %s: %s", what, strings.Join(rest, ", "))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stillAlive names those of processes that live.
func stillAlive(processes map[process]bool) []string {
	var left []string
	for p := range processes {
		if alive(p) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			left = append(left, fmt.Sprintf("%d %.60q", p.pid, name))
		}
	}
	return left
}

func names(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// memory is a value of /proc/PID/status in bytes.
func (d *daemon) memory(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in the status of sandboxd", name)
	return 0
}

// resetPeak makes VmHWM start again from now (proc_pid_clear_refs(5)).
func (d *daemon) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}
