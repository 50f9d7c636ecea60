package isolation

import (
	"slices"

	"github.com/sandboxd/sandboxd/internal/linux/rlimit"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// gVisor is a kernel in user space: what a program asks it is answered there, and
// the host sees one process with few rights. So some layers are its own, some can
// be seen from outside only, and some it does not have.

// OwnKernelTasks is what gVisor needs of the pids limit: its sandbox has some 50
// threads of its own, and 5 for each process.
const OwnKernelTasks = 512

// OwnKernelLacks names the limits that it does not count. Its threads and those of
// programs look the same to the host's pids limit, and its tmpfs has no inodes.
func OwnKernelLacks() []string { return []string{"processes", "threads", "workspace_inodes"} }

// OwnKernelRlimits leaves out the limits that it refuses to set: it has no message
// queues, and keeps no count of pending signals. And it counts a thread that waits
// for a processor as one that runs: its limit of CPU time must not come before the
// cgroup's account, which is the true one.
func OwnKernelRlimits(limits []pyrunner.Rlimit, threads int64) []pyrunner.Rlimit {
	for i, l := range limits {
		if number, ok := rlimit.Number("cpu"); ok && l[0] == int64(number) {
			limits[i][1], limits[i][2] = l[1]*threads, l[2]*threads
		}
	}
	return slices.DeleteFunc(limits, func(l pyrunner.Rlimit) bool {
		for _, name := range []string{"msgqueue", "sigpending"} {
			if number, ok := rlimit.Number(name); ok && l[0] == int64(number) {
				return true
			}
		}
		return false
	})
}

// CorrectForOwnKernel says what the look from inside cannot know. own and outside
// are namespaces of the daemon and of the kernel's process on the host.
func CorrectForOwnKernel(byLayer map[sandbox.Layer]sandbox.LayerReport, own, outside map[string]string) {
	// What gVisor itself is in, so is everything that runs in it.
	for layer, name := range map[sandbox.Layer]string{
		sandbox.LayerUserNS: "user", sandbox.LayerMountNS: "mnt", sandbox.LayerNetNS: "net",
		sandbox.LayerIPCNS: "ipc", sandbox.LayerUTSNS: "uts", sandbox.LayerCgroupNS: "cgroup",
	} {
		r := sandbox.LayerReport{Layer: layer, State: sandbox.LayerHeld, Reason: "gVisor's process is in one of its own"}
		if outside[name] == own[name] {
			r.State, r.Reason = sandbox.LayerMissing, "gVisor's process is in the daemon's; programs see none"
		}
		byLayer[layer] = r
	}
	note := func(layer sandbox.Layer, reason string) {
		r := byLayer[layer]
		r.Reason = reason
		if r.State == sandbox.LayerMissing {
			r.Mend = "take engine crun or runc, or require less of runsc in the configuration"
		}
		byLayer[layer] = r
	}
	note(sandbox.LayerPIDNS, "processes are gVisor's, the host has none of them")
	note(sandbox.LayerCgroupPIDs, "holds programs and gVisor's own threads together")
	note(sandbox.LayerDistinctUID, "gVisor runs under one host id for all sandboxes")
	note(sandbox.LayerPrivateTmp, "gVisor's tmpfs does not count files (nr_inodes)")
	note(sandbox.LayerMaskedProc, "gVisor's /proc tells of its own kernel and is not masked")
	note(sandbox.LayerLandlock, "gVisor has no Landlock")
	note(sandbox.LayerCgroupNS, byLayer[sandbox.LayerCgroupNS].Reason)
}
