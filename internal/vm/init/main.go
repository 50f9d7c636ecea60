//go:build linux

// Command init is process 1 of the test VM. It makes the machine's mounts (with
// cgroup v2 alone), runs the commands of /vm/plan.json one after the other, says
// on the console what each printed and how it ended, counts, and powers off.
//
// It never waits without a time limit: a VM that hangs tells nobody why.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// plan is what run.sh wrote for this boot.
type plan struct {
	Modules  []string  `json:"modules"` // paths of kernel modules, in load order
	Commands []command `json:"commands"`
}

// command is one program to run.
type command struct {
	Name    string   `json:"name"`
	Dir     string   `json:"dir"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Seconds int      `json:"seconds"` // time limit
}

func main() {
	sum := tally{}
	if err := run(&sum); err != nil {
		fmt.Println("vm: init:", err)
		sum.failed++
	}
	fmt.Printf("vm: total %d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped)
	unix.Sync()
	// Nothing can be done about a failure here; qemu has its own time limit.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func run(sum *tally) error {
	started := time.Now()
	if err := machine(); err != nil {
		return err
	}
	text, err := os.ReadFile("/vm/plan.json")
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	for _, m := range p.Modules {
		if err := loadModule(m); err != nil {
			fmt.Printf("vm: module %s: %v\n", m, err)
		}
	}
	describe(time.Since(started))
	for _, c := range p.Commands {
		c.run(sum)
	}
	return nil
}

// describe names what the results are worth: the kernel and its cgroups.
func describe(setup time.Duration) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		fmt.Println("vm: uname:", err)
	}
	var fs unix.Statfs_t
	mode := "unknown"
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		mode = "unified (v2)"
	}
	controllers, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	lsm, _ := os.ReadFile("/sys/kernel/security/lsm")
	fmt.Printf("vm: kernel %s, cgroup mode %s, controllers %s, lsm %s, setup %d ms\n",
		unix.ByteSliceToString(name.Release[:]), mode, strings.TrimSpace(string(controllers)), lsm, setup.Milliseconds())
}
