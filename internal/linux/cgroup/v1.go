//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// v1 is a tree with one mount for each controller. Co-mounted controllers share
// a directory behind symbolic links (cpu -> cpu,cpuacct).
type v1 struct {
	root, parent string
}

// mount returns the resolved mount of a controller. Without the check for
// cgroup.procs a missing controller would be "made" as a plain directory in the
// tmpfs that holds the mounts.
func (v v1) mount(controller string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(v.root, controller))
	if err != nil {
		return "", fmt.Errorf("controller %s: %w", controller, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
		return "", fmt.Errorf("controller %s is not mounted: %w", controller, err)
	}
	return dir, nil
}

func (v v1) path(controller, name string) string {
	return filepath.Join(v.root, controller, v.parent, name)
}

// controllers lists what a group needs. cpu is left out where it has nothing to
// do, since each hierarchy is one more write for each attach.
func (v v1) controllers(l Limits) []string {
	names := []string{"memory", "pids", "cpuacct"}
	if l.usesCPU() {
		names = append(names, "cpu")
	}
	return names
}

func (v v1) dirs(name string, l Limits) ([]string, error) {
	var dirs []string
	for _, controller := range v.controllers(l) {
		mount, err := v.mount(controller)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, filepath.Join(mount, v.parent, name))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// parents takes in the hierarchies that groups here do not use: an OCI runtime
// makes its group in every one that is mounted.
func (v v1) parents() ([]string, error) {
	mounts, err := os.ReadDir(v.root)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, entry := range mounts {
		mount, err := v.mount(entry.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // no hierarchy
		}
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, filepath.Join(mount, v.parent))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

func (v v1) apply(name string, l Limits) error {
	hierarchy := []cgroup1.Subsystem{cgroup1.NewMemory(v.root), cgroup1.NewPids(v.root), cgroup1.NewCpuacct(v.root)}
	if l.usesCPU() {
		hierarchy = append(hierarchy, cgroup1.NewCpu(v.root))
	}
	_, err := cgroup1.New(cgroup1.StaticPath(filepath.Join(v.parent, name)), v.resources(name, l),
		cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return hierarchy, nil }))
	return err
}

// resources closes swap in both ways v1 has: memory plus swap capped at the
// memory limit, where swap accounting is on, and swappiness 0, under which a
// group at its limit does not swap (memory.rst, 5.3).
func (v v1) resources(name string, l Limits) *specs.LinuxResources {
	memory := &specs.LinuxMemory{Limit: &l.MemoryBytes}
	if exists(filepath.Join(v.path("memory", name), memswFile)) {
		memory.Swap = &l.MemoryBytes
	}
	if exists(filepath.Join(v.path("memory", name), "memory.swappiness")) {
		memory.Swappiness = new(uint64)
	}
	r := &specs.LinuxResources{Memory: memory, Pids: &specs.LinuxPids{Limit: &l.Pids}}
	if l.usesCPU() {
		shares, quota, period := v1Shares(l.weight()), l.CPUQuotaMicros, uint64(quotaPeriodMicros)
		if quota == 0 {
			quota = -1
		}
		r.CPU = &specs.LinuxCPU{Shares: &shares, Quota: &quota, Period: &period}
	}
	return r
}

// v1Shares maps the v2 weight to v1 shares, default to default (100 to 1024).
func v1Shares(weight int64) uint64 { return max(2, uint64(weight)*1024/100) }

const (
	limitFile = "memory.limit_in_bytes"
	memswFile = "memory.memsw.limit_in_bytes"
)

// update sets memory itself: the kernel wants limit ≤ memsw at every moment, and
// the library (v3.1.3) raises the limit first.
func (v v1) update(name string, l Limits) error {
	dir := v.path("memory", name)
	current, err := readInt(filepath.Join(dir, limitFile))
	if err != nil {
		return err
	}
	order := []string{limitFile, memswFile}
	if l.MemoryBytes > current {
		slices.Reverse(order)
	}
	for _, file := range order {
		if file == memswFile && !exists(filepath.Join(dir, file)) {
			continue
		}
		if err := write(filepath.Join(dir, file), strconv.FormatInt(l.MemoryBytes, 10)); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(v.path("pids", name), "pids.max"), strconv.FormatInt(l.Pids, 10)); err != nil {
		return err
	}
	if !l.usesCPU() {
		return nil
	}
	resources := v.resources(name, l)
	return cgroup1.NewCpu(v.root).Update(filepath.Join(v.parent, name), resources)
}

func (v v1) files(name string) groupFiles {
	return groupFiles{
		attach:  "tasks",
		procs:   filepath.Join(v.path("pids", name), "cgroup.procs"),
		pidsMax: filepath.Join(v.path("pids", name), "pids.max"),
		cpu:     filepath.Join(v.path("cpuacct", name), "cpuacct.usage"),
		cpuSys:  filepath.Join(v.path("cpuacct", name), "cpuacct.usage_sys"),
		peak:    filepath.Join(v.path("memory", name), "memory.max_usage_in_bytes"),
		oom:     filepath.Join(v.path("memory", name), "memory.oom_control"),
		readCPU: readCPUV1,
		tasks:   filepath.Join(v.path("pids", name), "pids.current"),
		isEmpty: func(data []byte) (bool, error) {
			count, err := parseInt(data)
			return count == 0, err
		},
	}
}
