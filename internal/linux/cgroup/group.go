//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxd/sandboxd/internal/rollback"
)

// Group is one sandbox's group, in all the hierarchies that it needs.
type Group struct {
	name   string
	tree   tree
	dirs   []string
	files  groupFiles
	limits Limits

	attach         []*os.File
	cpu, cpuSys    *os.File // cpuSys only on v1
	peak           *os.File // nil where the kernel has none
	oom            *os.File
	tasks          *os.File // what tells whether the group is empty
	baseCPU        CPU
	baseOOM        int64
	peakCanBeReset bool
}

// groupFiles are the files of a group that differ between versions.
type groupFiles struct {
	attach                                 string // base name, in every directory
	procs, pidsMax, cpu, cpuSys, peak, oom string
	tasks                                  string
	isEmpty                                func(tasks []byte) (bool, error)
	readCPU                                func(g *Group) (CPU, error)
}

// open keeps descriptors of the files on the path of every run.
func open(name string, t tree, dirs []string, l Limits) (g *Group, err error) {
	g = &Group{name: name, tree: t, dirs: dirs, files: t.files(name), limits: l}
	var undo rollback.Stack
	undo.Add("close files", g.closeFiles)
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Rollback())
			g = nil
		}
	}()
	for _, dir := range dirs {
		f, err := os.OpenFile(filepath.Join(dir, g.files.attach), os.O_WRONLY, 0)
		if err != nil {
			return g, err
		}
		g.attach = append(g.attach, f)
	}
	if g.cpu, err = os.Open(g.files.cpu); err != nil {
		return g, err
	}
	if g.files.cpuSys != "" {
		if g.cpuSys, err = os.Open(g.files.cpuSys); err != nil {
			return g, err
		}
	}
	if g.oom, err = os.Open(g.files.oom); err != nil {
		return g, err
	}
	if g.tasks, err = os.Open(g.files.tasks); err != nil {
		return g, err
	}
	return g, g.openPeak()
}

// openPeak opens the peak for resetting where the kernel allows that: always on
// v1, on v2 from Linux 6.12 and then for this descriptor alone. Older kernels open
// the file for writing and refuse the write, so one is tried.
func (g *Group) openPeak() error {
	if !exists(g.files.peak) { // v2 before Linux 5.19
		return nil
	}
	var err error
	if g.peak, err = os.OpenFile(g.files.peak, os.O_RDWR, 0); err == nil {
		_, err = g.peak.WriteAt([]byte("0"), 0)
		g.peakCanBeReset = err == nil
		return nil
	}
	g.peak, err = os.Open(g.files.peak)
	return err
}

func (g *Group) closeFiles() error {
	var errs []error
	for _, f := range append([]*os.File{g.cpu, g.cpuSys, g.peak, g.oom, g.tasks}, g.attach...) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Close lets go of a group that somebody else removes (Manager.Sweep).
func (g *Group) Close() error { return g.closeFiles() }

// Name is the name given to Create.
func (g *Group) Name() string { return g.name }

// AttachFiles returns the descriptors through which a process joins: write "0"
// to each. They belong to the group and stay open until Delete.
//
// On v1 they are the tasks files, which move only the writing thread: the writer
// must be single-threaded, as a fresh child is. Moving a whole process through
// cgroup.procs waits for a grace period of 5 to 22 ms after an idle spell. On v2
// it is cgroup.procs. The right to move is checked against the opener's
// credentials, so an unprivileged child can use them (Linux 5.17; CVE-2021-4197).
func (g *Group) AttachFiles() []*os.File { return g.attach }

// AttachFDs are the descriptors of AttachFiles.
func (g *Group) AttachFDs() []int {
	fds := make([]int, len(g.attach))
	for i, f := range g.attach {
		fds[i] = int(f.Fd())
	}
	return fds
}

// Procs lists the group's processes, as ids in the daemon's pid namespace.
func (g *Group) Procs() ([]int, error) { return readPids(g.files.procs) }

// Empty tells whether no task is left in the group, one being reaped included.
// Unlike Procs it makes the kernel list nothing.
func (g *Group) Empty() (bool, error) {
	data, err := readAt(g.tasks)
	if err != nil {
		return false, fmt.Errorf("read tasks of cgroup %s: %w", g.name, err)
	}
	return g.files.isEmpty(data)
}

// Update changes the limits, for example between two runs. A group made without
// CPU limits can't get them.
func (g *Group) Update(l Limits) error {
	if err := l.validate(); err != nil {
		return fmt.Errorf("update cgroup %s: %w", g.name, err)
	}
	if l.usesCPU() && !g.limits.usesCPU() {
		return fmt.Errorf("update cgroup %s: made without the cpu controller", g.name)
	}
	if !l.usesCPU() && g.limits.usesCPU() {
		l.CPUWeight = 100 // writes the defaults back
	}
	if err := g.tree.update(g.name, l); err != nil {
		return fmt.Errorf("update cgroup %s: %w", g.name, err)
	}
	g.limits = l
	return nil
}

// Delete waits until the group is empty, removes it and closes its files. It
// kills nothing. When ctx ends first, the error is its cause, and Delete may be
// called again.
func (g *Group) Delete(ctx context.Context) error {
	for _, dir := range g.dirs {
		if err := removeDir(ctx, dir); err != nil {
			return fmt.Errorf("delete cgroup %s: %w", g.name, err)
		}
	}
	return g.closeFiles()
}
