package sandbox

import "slices"

// Layer names one isolation layer. The strings are API: requests require layers
// by them, and results list what held.
type Layer string

// The isolation layers, weakest host needs first.
const (
	LayerProcessGroup Layer = "process_group" // own session and process group, nothing inherited
	LayerCleanEnv     Layer = "clean_env"     // environment made from nothing
	LayerScratch      Layer = "scratch"       // own working directory, removed afterwards
	LayerRlimits      Layer = "rlimits"       // setrlimit(2)
	LayerNoNewPrivs   Layer = "no_new_privs"  // PR_SET_NO_NEW_PRIVS
	LayerNotDumpable  Layer = "not_dumpable"  // PR_SET_DUMPABLE 0
	LayerSeccomp      Layer = "seccomp"       // program filter
	LayerLandlock     Layer = "landlock"      // path rules, where the kernel has them
	LayerDistinctUID  Layer = "distinct_uid"  // a host uid of its own per live sandbox
	LayerNoCaps       Layer = "no_capabilities"
	LayerUserNS       Layer = "user_ns"
	LayerPIDNS        Layer = "pid_ns"
	LayerMountNS      Layer = "mount_ns"
	LayerNetNS        Layer = "net_ns"
	LayerIPCNS        Layer = "ipc_ns"
	LayerUTSNS        Layer = "uts_ns"
	LayerCgroupNS     Layer = "cgroup_ns"
	LayerRootfs       Layer = "read_only_rootfs" // pivot_root into an image, read-only
	LayerPrivateTmp   Layer = "private_tmp"      // /tmp, /dev/shm and workspace with size and inode caps
	LayerMaskedProc   Layer = "masked_proc"
	LayerCgroupMemory Layer = "cgroup_memory" // without swap
	LayerCgroupPIDs   Layer = "cgroup_pids"
	LayerCgroupCPU    Layer = "cgroup_cpu" // accounting of the whole tree
)

// Layers lists all layers in the order in which they are shown.
func Layers() []Layer {
	return []Layer{
		LayerProcessGroup, LayerCleanEnv, LayerScratch, LayerRlimits, LayerNoNewPrivs,
		LayerNotDumpable, LayerSeccomp, LayerLandlock, LayerDistinctUID, LayerNoCaps,
		LayerUserNS, LayerPIDNS, LayerMountNS, LayerNetNS, LayerIPCNS, LayerUTSNS, LayerCgroupNS,
		LayerRootfs, LayerPrivateTmp, LayerMaskedProc,
		LayerCgroupMemory, LayerCgroupPIDs, LayerCgroupCPU,
	}
}

// LayerState says how a layer stands on this host.
type LayerState string

// The states of a layer.
const (
	LayerHeld          LayerState = "held"
	LayerMissing       LayerState = "missing"
	LayerNotApplicable LayerState = "not_applicable" // the engine is not made of it
)

// LayerReport is what a probe found out about one layer by doing it.
type LayerReport struct {
	Layer  Layer      `json:"layer"`
	State  LayerState `json:"state" enum:"held,missing,not_applicable"`
	Reason string     `json:"reason,omitempty" doc:"Why it is not held, or what exactly holds (for example an ABI version)"`
	Mend   string     `json:"mend,omitempty" doc:"What an operator can do about it"`
}

// KnownLayer tells whether name is one of Layers.
func KnownLayer(name Layer) bool {
	return slices.Contains(Layers(), name)
}
