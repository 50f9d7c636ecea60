//go:build linux

package cgroup

import (
	"errors"
	"os"
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
