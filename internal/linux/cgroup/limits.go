//go:build linux

package cgroup

import (
	"errors"
	"fmt"
)

// quotaPeriodMicros is the period that CPU quotas are counted in, the kernel's
// default (Documentation/scheduler/sched-bwc.rst).
const quotaPeriodMicros = 100_000

// Limits cap one group. Memory and pids are what a sandbox rests on, so they
// have no "unlimited".
type Limits struct {
	// MemoryBytes caps memory, page cache and kernel memory; no swap is given.
	MemoryBytes int64
	// Pids caps processes and threads together.
	Pids int64
	// CPUQuotaMicros is CPU time for each 100,000 µs; 0 sets no quota.
	CPUQuotaMicros int64
	// CPUWeight is the share under contention, 1 to 10,000 as on v2; 0 leaves the
	// kernel's default, 100.
	CPUWeight int64
}

func (l Limits) validate() error {
	var errs []error
	if l.MemoryBytes <= 0 {
		errs = append(errs, fmt.Errorf("memory limit %d is not positive", l.MemoryBytes))
	}
	if l.Pids <= 0 {
		errs = append(errs, fmt.Errorf("pids limit %d is not positive", l.Pids))
	}
	// Less than 1 ms a period is refused by the kernel.
	if l.CPUQuotaMicros != 0 && l.CPUQuotaMicros < 1000 {
		errs = append(errs, fmt.Errorf("cpu quota %d µs is below 1000", l.CPUQuotaMicros))
	}
	if l.CPUWeight < 0 || l.CPUWeight > 10_000 {
		errs = append(errs, fmt.Errorf("cpu weight %d is not in 1 to 10000", l.CPUWeight))
	}
	return errors.Join(errs...)
}

// usesCPU says whether the cpu controller has anything to do.
func (l Limits) usesCPU() bool { return l.CPUQuotaMicros != 0 || l.CPUWeight != 0 }

// weight is the v2 weight, 100 where none is asked for.
func (l Limits) weight() int64 {
	if l.CPUWeight == 0 {
		return 100
	}
	return l.CPUWeight
}
