//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/internal/rollback"
)

// Observed is a group that somebody else made, limits and removes: a container's.
// It is only read. Once its maker has removed it, reading is an error.
type Observed struct {
	group Group
}

// Observe opens the group of a process, which must be one whose path holds name.
// What is read counts from now on, but for the peak of memory.
//
// Preconditions: the caller holds pid, so that the number stands for no other.
func Observe(root string, pid int, name string) (o *Observed, err error) {
	unified, err := isUnified(root)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, err
	}
	path, err := groupOf(string(text), unified)
	if err != nil {
		return nil, err
	}
	if name == "" || !strings.Contains(path, name) {
		return nil, fmt.Errorf("process %d is in cgroup %s, which is not of %s", pid, path, name)
	}
	t := tree(v1{root: root, parent: path})
	if unified {
		t = v2{root: root, parent: path}
	}
	o = &Observed{group: Group{name: path, tree: t, files: t.files("")}}
	var undo rollback.Stack
	undo.Add("close files", o.Close)
	if err := o.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("observe cgroup %s: %w", path, err), undo.Rollback())
	}
	return o, nil
}

func (o *Observed) open() error {
	g := &o.group
	for _, f := range []struct {
		into **os.File
		path string
	}{{&g.cpu, g.files.cpu}, {&g.cpuSys, g.files.cpuSys}, {&g.oom, g.files.oom}, {&g.peak, g.files.peak}} {
		if f.path == "" || f.into == &g.peak && !exists(f.path) {
			continue
		}
		file, err := os.Open(f.path)
		if err != nil {
			return err
		}
		*f.into = file
	}
	return g.rebase()
}

// groupOf reads /proc/PID/cgroup (cgroups(7)). Where controllers are on v1, those
// that are read must agree on the path.
func groupOf(text string, unified bool) (string, error) {
	found := ""
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !ofInterest(fields[0], fields[1], unified) {
			continue
		}
		if path := fields[2]; found != "" && path != found || path != filepath.Clean(path) || !filepath.IsAbs(path) || path == "/" {
			return "", fmt.Errorf("its cgroups are %q and %q", found, path)
		}
		found = fields[2]
	}
	if found == "" || strings.HasPrefix(found, "/..") {
		return "", fmt.Errorf("it has no cgroup that can be seen from here: %q", found)
	}
	return found, nil
}

func ofInterest(number, controllers string, unified bool) bool {
	if unified {
		return number == "0" && controllers == ""
	}
	for c := range strings.SplitSeq(controllers, ",") {
		if c == "memory" || c == "pids" || c == "cpuacct" {
			return true
		}
	}
	return false
}

// CPU reads the time used since StartAccount.
func (o *Observed) CPU() (CPU, error) { return o.group.CPU() }

// OOMKills counts the processes that the kernel killed in the group for want of
// memory since StartAccount.
func (o *Observed) OOMKills() (int64, error) { return o.group.OOMKills() }

// MemoryPeakBytes reads the most memory the group held at once since it was made.
// It is errors.ErrUnsupported on v2 before Linux 5.19.
func (o *Observed) MemoryPeakBytes() (int64, error) { return o.group.MemoryPeakBytes() }

// StartAccount has what the group used so far count no longer, but for the peak.
func (o *Observed) StartAccount() error { return o.group.rebase() }

// Limits reads what the group's memory and processes are capped at.
func (o *Observed) Limits() (Limits, error) {
	memory := filepath.Join(filepath.Dir(o.group.files.oom), "memory.max")
	if o.group.cpuSys != nil {
		memory = filepath.Join(filepath.Dir(o.group.files.oom), limitFile)
	}
	var l Limits
	var errs [2]error
	l.MemoryBytes, errs[0] = readInt(memory)
	l.Pids, errs[1] = readInt(o.group.files.pidsMax)
	return l, errors.Join(errs[:]...)
}

// SwapOpen says why the group's memory may go to swap, nil if it may not: its
// maker has closed it, or there is none.
func (o *Observed) SwapOpen() error {
	dir := filepath.Dir(o.group.files.oom)
	file, most := filepath.Join(dir, "memory.swap.max"), int64(0)
	if o.group.cpuSys != nil {
		limit, err := readInt(filepath.Join(dir, limitFile))
		if err != nil {
			return err
		}
		file, most = filepath.Join(dir, memswFile), limit
	}
	if !exists(file) {
		return o.group.tree.swapOpen("")
	}
	if n, err := readInt(file); err != nil || n > most {
		return fmt.Errorf("%s is %d: %w", filepath.Base(file), n, errors.Join(errors.New("swap is open"), err))
	}
	return nil
}

// Close lets go of the group.
func (o *Observed) Close() error { return o.group.closeFiles() }
