//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// v2 is the unified tree.
type v2 struct {
	root, parent string
}

func (v v2) path(name string) string { return filepath.Join(v.root, v.parent, name) }

func (v v2) parents() ([]string, error) { return []string{filepath.Join(v.root, v.parent)}, nil }

func (v v2) dirs(name string, _ Limits) ([]string, error) { return []string{v.path(name)}, nil }

// apply hands the controllers down along the path and writes the limits.
func (v v2) apply(name string, l Limits) error {
	controllers := []string{"memory", "pids"}
	if l.usesCPU() {
		controllers = append(controllers, "cpu")
	}
	if err := v.enable(name, controllers...); err != nil {
		return err
	}
	return v.update(name, l)
}

func (v v2) enable(name string, controllers ...string) error {
	m, err := v.load(name)
	if err != nil {
		return err
	}
	err = m.ToggleControllers(controllers, cgroup2.Enable)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: a process sits in a group above %s; give the daemon's unit DelegateSubgroup=",
			err, filepath.Join(v.parent, name))
	}
	return err
}

func (v v2) load(name string) (*cgroup2.Manager, error) {
	return cgroup2.Load(filepath.Join(v.parent, name), cgroup2.WithMountpoint(v.root))
}

func (v v2) update(name string, l Limits) error {
	m, err := v.load(name)
	if err != nil {
		return err
	}
	return m.Update(v.resources(name, l))
}

// resources closes swap first: with swap open, a program over its cap slows down
// instead of dying. The swap file is missing from kernels built without swap,
// where there is nothing to close. One process of a group is killed at a time
// (memory.oom.group 0), so that the supervisor outlives its program.
func (v v2) resources(name string, l Limits) *cgroup2.Resources {
	memory := &cgroup2.Memory{Max: &l.MemoryBytes, OOMGroup: new(bool)}
	if exists(filepath.Join(v.path(name), "memory.swap.max")) {
		memory.Swap = new(int64)
	}
	r := &cgroup2.Resources{Memory: memory, Pids: &cgroup2.Pids{Max: l.Pids}}
	if l.usesCPU() {
		weight, period := uint64(l.weight()), uint64(quotaPeriodMicros)
		r.CPU = &cgroup2.CPU{Weight: &weight, Max: cgroup2.NewCPUMax(nil, &period)}
		if l.CPUQuotaMicros != 0 {
			r.CPU.Max = cgroup2.NewCPUMax(&l.CPUQuotaMicros, &period)
		}
	}
	return r
}

func (v v2) files(name string) groupFiles {
	dir := v.path(name)
	return groupFiles{
		attach:  "cgroup.procs",
		procs:   filepath.Join(dir, "cgroup.procs"),
		pidsMax: filepath.Join(dir, "pids.max"),
		cpu:     filepath.Join(dir, "cpu.stat"),
		peak:    filepath.Join(dir, "memory.peak"),
		oom:     filepath.Join(dir, "memory.events"),
		readCPU: readCPUV2,
		tasks:   filepath.Join(dir, "cgroup.events"),
		isEmpty: func(data []byte) (bool, error) {
			populated, err := parseKey(data, "populated")
			return populated == 0, err
		},
	}
}
