//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readNanos reads one of the cpuacct files, in nanoseconds.
func readNanos(f *os.File) (int64, error) {
	data, err := readAt(f)
	if err != nil {
		return 0, err
	}
	return parseInt(data)
}

// readCPUV1 reads cpuacct (Documentation/admin-guide/cgroup-v1/cpuacct.rst).
func readCPUV1(g *Group) (CPU, error) {
	total, err := readNanos(g.cpu)
	if err != nil {
		return CPU{}, err
	}
	system, err := readNanos(g.cpuSys)
	if err != nil {
		return CPU{}, err
	}
	// The two files are read one after the other, and ticks are coarse.
	system = min(system, total)
	return CPU{TotalMicros: total / 1000, UserMicros: (total - system) / 1000, SystemMicros: system / 1000}, nil
}

// readCPUV2 reads cpu.stat, which has the three times even without the cpu
// controller.
func readCPUV2(g *Group) (CPU, error) {
	data, err := readAt(g.cpu)
	if err != nil {
		return CPU{}, err
	}
	return parseCPUStat(data)
}

func parseCPUStat(data []byte) (CPU, error) {
	total, errTotal := parseKey(data, "usage_usec")
	user, errUser := parseKey(data, "user_usec")
	system, errSystem := parseKey(data, "system_usec")
	return CPU{TotalMicros: total, UserMicros: user, SystemMicros: system}, errors.Join(errTotal, errUser, errSystem)
}

// CPU is what all groups together have used since the parent was made, those
// that are gone included.
func (m *Manager) CPU() (CPU, error) {
	parents, err := m.tree.parents()
	if err != nil {
		return CPU{}, err
	}
	for _, dir := range parents {
		data, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		if err == nil {
			nanos, err := parseInt(data)
			return CPU{TotalMicros: nanos / 1000}, err
		}
		if data, err = os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil && m.Version() == 2 {
			return parseCPUStat(data)
		}
	}
	return CPU{}, fmt.Errorf("read CPU of %d groups' parent: %w", len(parents), fs.ErrNotExist)
}
