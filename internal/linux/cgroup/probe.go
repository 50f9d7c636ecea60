//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Finding says whether one controller can be enforced here.
type Finding struct {
	// Controller is memory, pids, cpu or cpuacct (accounting).
	Controller string
	// Held is true when a limit was set, read back and removed.
	Held bool
	// Reason and Mend say why not and what to do. Both are empty when held.
	Reason, Mend string
}

// probe is one limit to try: its file, and what must be read from it.
type probe struct {
	controller string
	limits     Limits
	file       func(name string) string
	want       string
	mend       string
}

const (
	probeMemoryBytes = 64 << 20
	probePids        = 16
	probeQuotaMicros = 50_000
	probeTimeout     = 5 * time.Second
)

// Probe finds out by doing: for each controller it makes a group, sets a limit,
// reads it back and removes the group. The error is for what it could not
// remove.
func (m *Manager) Probe() ([]Finding, error) {
	var findings []Finding
	var errs []error
	for _, p := range m.tree.probes() {
		finding := Finding{Controller: p.controller, Held: true}
		reason, err := m.try(p)
		if reason != nil {
			finding = Finding{Controller: p.controller, Reason: reason.Error(), Mend: p.mend}
		}
		findings = append(findings, finding)
		errs = append(errs, err)
	}
	return findings, errors.Join(errs...)
}

// try returns why p does not hold, and what could not be cleaned up.
func (m *Manager) try(p probe) (reason, cleanup error) {
	name := fmt.Sprintf("probe-%d-%s", os.Getpid(), p.controller)
	group, err := m.Create(name, p.limits)
	if err != nil {
		return err, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	defer func() { cleanup = group.Delete(ctx) }()
	data, err := os.ReadFile(p.file(name))
	if err != nil {
		return err, nil
	}
	got := strings.TrimSpace(string(data))
	if got != p.want && p.want != "" {
		return fmt.Errorf("%s is %s after %s was written", filepath.Base(p.file(name)), got, p.want), nil
	}
	if p.controller == "memory" {
		return m.tree.swapOpen(name), nil
	}
	return nil, nil
}

func (v v1) probes() []probe {
	at := func(controller, file string) func(string) string {
		return func(name string) string { return filepath.Join(v.path(controller, name), file) }
	}
	mend := func(controller string) string {
		return "mount the v1 controller " + controller + ", and run the daemon as root"
	}
	plain := Limits{MemoryBytes: probeMemoryBytes, Pids: probePids}
	quota := plain
	quota.CPUQuotaMicros = probeQuotaMicros
	return []probe{
		{"memory", plain, at("memory", limitFile), fmt.Sprint(probeMemoryBytes), mend("memory") + "; close swap (swapoff -a, or boot with swapaccount=1)"},
		{"pids", plain, at("pids", "pids.max"), fmt.Sprint(probePids), mend("pids")},
		{"cpu", quota, at("cpu", "cpu.cfs_quota_us"), fmt.Sprint(probeQuotaMicros), mend("cpu")},
		{"cpuacct", plain, at("cpuacct", "cpuacct.usage"), "", mend("cpuacct")},
	}
}

func (v v2) probes() []probe {
	at := func(file string) func(string) string {
		return func(name string) string { return filepath.Join(v.path(name), file) }
	}
	mend := func(controller string) string {
		return "delegate the controller " + controller + " to the daemon's group (systemd: Delegate=yes, DelegateSubgroup=)"
	}
	plain := Limits{MemoryBytes: probeMemoryBytes, Pids: probePids}
	quota := plain
	quota.CPUQuotaMicros = probeQuotaMicros
	return []probe{
		{"memory", plain, at("memory.max"), fmt.Sprint(probeMemoryBytes), mend("memory") + "; close swap (swapoff -a)"},
		{"pids", plain, at("pids.max"), fmt.Sprint(probePids), mend("pids")},
		{"cpu", quota, at("cpu.max"), fmt.Sprintf("%d %d", probeQuotaMicros, quotaPeriodMicros), mend("cpu")},
		{"cpuacct", plain, at("cpu.stat"), "", "use Linux 4.15 or newer"},
	}
}

// swapOpen says whether a group may swap: v1 without swap accounting still has
// swappiness 0.
func (v v1) swapOpen(name string) error {
	if exists(filepath.Join(v.path("memory", name), memswFile)) || !hostSwaps() {
		return nil
	}
	swappiness, err := readInt(filepath.Join(v.path("memory", name), "memory.swappiness"))
	if err != nil || swappiness != 0 {
		return fmt.Errorf("swap is in use and not accounted: swappiness %d, %w", swappiness, err)
	}
	return nil
}

func (v v2) swapOpen(name string) error {
	if exists(filepath.Join(v.path(name), "memory.swap.max")) || !hostSwaps() {
		return nil
	}
	return errors.New("swap is in use and not accounted")
}

// hostSwaps says whether the host has a swap area: a line below the heading of
// /proc/swaps. An unreadable file counts as swap.
func hostSwaps() bool {
	data, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(data), "\n") > 1
}
