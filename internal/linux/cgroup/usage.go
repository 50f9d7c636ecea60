//go:build linux

package cgroup

import (
	"errors"
	"fmt"
)

// CPU is the time used by all processes of a group, dead ones included, in µs.
// The total is exact; on v1 the split comes from clock ticks.
type CPU struct {
	TotalMicros  int64
	UserMicros   int64
	SystemMicros int64
}

// ErrFixedPeak says that the kernel can't forget a group's peak (v2 before Linux
// 6.12): take a fresh group instead.
var ErrFixedPeak = errors.New("memory peak can't be reset on this kernel")

// CPU reads the time used since Create or Reset.
func (g *Group) CPU() (CPU, error) {
	now, err := g.files.readCPU(g)
	if err != nil {
		return CPU{}, fmt.Errorf("read cpu of cgroup %s: %w", g.name, err)
	}
	return CPU{
		TotalMicros:  now.TotalMicros - g.baseCPU.TotalMicros,
		UserMicros:   now.UserMicros - g.baseCPU.UserMicros,
		SystemMicros: now.SystemMicros - g.baseCPU.SystemMicros,
	}, nil
}

// CPUMicros reads the total since Create or Reset: one small read through a kept
// descriptor, cheap enough to poll.
func (g *Group) CPUMicros() (int64, error) {
	if g.cpuSys == nil {
		cpu, err := g.CPU()
		return cpu.TotalMicros, err
	}
	total, err := readNanos(g.cpu)
	if err != nil {
		return 0, fmt.Errorf("read cpu of cgroup %s: %w", g.name, err)
	}
	return total/1000 - g.baseCPU.TotalMicros, nil
}

// MemoryPeakBytes reads the most memory the group held at once since Create or
// Reset: programs, page cache, tmpfs and kernel memory. It is
// errors.ErrUnsupported on v2 before Linux 5.19.
func (g *Group) MemoryPeakBytes() (int64, error) {
	if g.peak == nil {
		return 0, fmt.Errorf("read memory peak of cgroup %s: %w", g.name, errors.ErrUnsupported)
	}
	data, err := readAt(g.peak)
	if err != nil {
		return 0, fmt.Errorf("read memory peak of cgroup %s: %w", g.name, err)
	}
	return parseInt(data)
}

// OOMKills counts the processes that the kernel killed in the group for want of
// memory since Create or Reset (v1: Linux 4.13).
func (g *Group) OOMKills() (int64, error) {
	n, err := g.oomKills()
	return n - g.baseOOM, err
}

func (g *Group) oomKills() (int64, error) {
	data, err := readAt(g.oom)
	if err != nil {
		return 0, fmt.Errorf("read kills of cgroup %s: %w", g.name, err)
	}
	return parseKey(data, "oom_kill")
}

// StartAccount has what the group used so far count no longer, its memory peak
// included where the kernel can forget one: what is made ahead of a run is not the
// run's. Unlike Reset it may be called while processes are in the group.
func (g *Group) StartAccount() error {
	if err := g.Reset(); !errors.Is(err, ErrFixedPeak) {
		return err
	}
	return g.rebase()
}

// Reset starts the counters anew for another run. It fails with [ErrFixedPeak]
// where only a fresh group has a fresh peak.
//
// Preconditions: the group is empty.
func (g *Group) Reset() error {
	if !g.peakCanBeReset {
		return fmt.Errorf("reset cgroup %s: %w", g.name, ErrFixedPeak)
	}
	if _, err := g.peak.WriteAt([]byte("0"), 0); err != nil {
		return fmt.Errorf("reset memory peak of cgroup %s: %w", g.name, err)
	}
	return g.rebase()
}

func (g *Group) rebase() error {
	cpu, err := g.files.readCPU(g)
	if err != nil {
		return fmt.Errorf("reset cgroup %s: %w", g.name, err)
	}
	oom, err := g.oomKills()
	if err != nil {
		return err
	}
	g.baseCPU, g.baseOOM = cpu, oom
	return nil
}
