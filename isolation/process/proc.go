package process

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
)

// clockTick is the unit of the times in /proc/PID/stat: USER_HZ, 100 on every
// architecture this runs on (proc_pid_stat(5)).
const clockTickMillis = 10.0

// children lists a process's living children.
func children(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	return numbers(string(data))
}

func numbers(text string) []int {
	var out []int
	for word := range strings.FieldsSeq(text) {
		if n, err := strconv.Atoi(word); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// statFields are the fields of /proc/PID/stat after the name, which may hold
// anything: from the process's state on, field 3 of the manual.
func statFields(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	return strings.Fields(rest)
}

// parent is a process's parent, 0 when it has ended.
func parent(pid int) int {
	f := statFields(pid)
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}

// cpuTimes are a process's user and system time in ms.
func cpuTimes(pid int) (user, system float64) {
	f := statFields(pid)
	if len(f) < 13 {
		return 0, 0
	}
	u, _ := strconv.ParseFloat(f[11], 64)
	s, _ := strconv.ParseFloat(f[12], 64)
	return u * clockTickMillis, s * clockTickMillis
}

// killOwned kills every process whose real user id is an owned one, until none
// is left. Zombies count as gone.
func killOwned(ctx context.Context, owned func(uid uint32) bool) error {
	for {
		left := 0
		for _, pid := range allProcesses() {
			if uid, alive := owner(pid); alive && owned(uid) {
				left++
				kill(pid, owned)
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kill goes by descriptor and asks again whose the process is: the number may
// belong to another by now.
func kill(pid int, owned func(uid uint32) bool) {
	p, err := pidfd.Open(pid)
	if err != nil {
		return
	}
	defer p.Close()
	if uid, alive := owner(pid); alive && owned(uid) {
		_ = p.Kill()
	}
}

func allProcesses() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return numbers(strings.Join(names, " "))
}

// owner is a living process's real user id.
func owner(pid int) (uid uint32, alive bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "State":
			if strings.HasPrefix(strings.TrimSpace(value), "Z") {
				return 0, false
			}
		case "Uid":
			if ids := numbers(value); len(ids) > 0 && ids[0] >= 0 {
				return uint32(ids[0]), true //nolint:gosec // a uid of the kernel
			}
		}
	}
	return 0, false
}
