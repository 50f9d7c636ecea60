package isolation

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Where things are inside a sandbox.
const (
	Workspace = "/workspace"
	Hostname  = "sandbox"
)

// IDs inside a sandbox. The supervisor is root of its own user namespace, which
// is nobody outside; the judge's id is kept free for it.
const (
	SupervisorID = 0
	ProgramID    = 1000
	JudgeID      = 1001
	// IDsPerSandbox host ids belong to each live sandbox: supervisor, program,
	// judge and a spare one.
	IDsPerSandbox = 4
)

// supervisorTasks is what a sandbox's pids limit holds beside the program.
const supervisorTasks = 1

// ThreadStackBytes is the stack of a thread that asks for no other. With the
// usual 8 MiB a few threads would use up RLIMIT_DATA without touching a page.
const ThreadStackBytes = 2 << 20

// Host is what a spec needs to know of the place where it is carried out.
type Host struct {
	RootPath    string   // rootfs, for bundles; "/" where the root is entered already
	Args        []string // the supervisor's command
	FirstID     uint32   // first of the sandbox's own host ids
	CgroupsPath string
}

// Env is the whole environment of a supervisor, and so of the program.
func Env() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + Workspace,
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"TMPDIR=/tmp",
	}
}

// Capabilities that the supervisor keeps over its own user namespace: to become
// the program's user, to kill it, and to read the files it leaves.
func Capabilities() []string {
	return []string{"CAP_DAC_READ_SEARCH", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
}

// Spec describes the sandbox of p. It is the only description there is: bundles
// hold it, other engines carry it out.
func Spec(p Plan, h Host) *specs.Spec {
	caps := Capabilities()
	return &specs.Spec{
		Version:  specs.Version,
		Root:     &specs.Root{Path: h.RootPath, Readonly: true},
		Hostname: Hostname,
		Mounts:   mounts(p.Limits),
		Process: &specs.Process{
			User:            specs.User{UID: SupervisorID, GID: SupervisorID},
			Args:            h.Args,
			Env:             Env(),
			Cwd:             "/",
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
			UIDMappings:   idMappings(h.FirstID),
			GIDMappings:   idMappings(h.FirstID),
			CgroupsPath:   h.CgroupsPath,
			Resources:     resources(p.Limits),
			MaskedPaths:   maskedPaths(),
			ReadonlyPaths: readonlyPaths(),
		},
	}
}

func idMappings(first uint32) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{
		{ContainerID: SupervisorID, HostID: first, Size: 1},
		{ContainerID: ProgramID, HostID: first + 1, Size: 1},
		{ContainerID: JudgeID, HostID: first + 2, Size: 1},
	}
}

// mounts are the sandbox's own: a view of its processes only, and the places
// that may be written, each with a cap on bytes and on inodes, because empty
// files use no bytes.
func mounts(l sandbox.Limits) []specs.Mount {
	tmpfs := func(target string, owner ...string) specs.Mount {
		return specs.Mount{
			Destination: target, Type: "tmpfs", Source: "tmpfs",
			Options: append([]string{
				"nosuid", "nodev", "noexec",
				fmt.Sprintf("size=%d", l.WorkspaceBytes), fmt.Sprintf("nr_inodes=%d", l.WorkspaceInodes),
			}, owner...),
		}
	}
	return []specs.Mount{
		// subset=pid leaves out everything of /proc that is not a process: the
		// kernel's own files and switches (proc(5), Linux 5.8). hidepid hides the
		// supervisor from the program.
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec", "subset=pid", "hidepid=2"}},
		tmpfs("/tmp", "mode=1777"),
		tmpfs("/dev/shm", "mode=1777"),
		tmpfs(Workspace, "mode=0755", fmt.Sprintf("uid=%d", ProgramID), fmt.Sprintf("gid=%d", ProgramID)),
	}
}

// maskedPaths hide what a whole /proc would show; for kernels and runtimes that
// do not know subset=pid.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/key-users",
		"/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/slabinfo", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func resources(l sandbox.Limits) *specs.LinuxResources {
	memory, tasks := l.MemoryBytes, Tasks(l)
	return &specs.LinuxResources{
		// Swap is memory plus swap in the spec: equal means none.
		Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory},
		Pids:   &specs.LinuxPids{Limit: &tasks},
	}
}

// Tasks is the pids limit of a sandbox: threads of the program, its children
// with a thread each, and the supervisor.
func Tasks(l sandbox.Limits) int64 {
	return l.Threads + l.Processes + supervisorTasks
}
