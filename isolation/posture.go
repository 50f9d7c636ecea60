package isolation

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

//go:embed posture.py
var postureProgram string

// Posture is what a program sees of its own confinement.
type Posture struct {
	Status      map[string]string   `json:"status"`
	Namespaces  map[string]string   `json:"namespaces"`
	UIDMap      []string            `json:"uid_map"`
	GIDMap      []string            `json:"gid_map"`
	Cgroup      []string            `json:"cgroup"`
	PID         int                 `json:"pid"`
	PPID        int                 `json:"ppid"`
	SIDIsOwn    bool                `json:"sid_is_own"`
	Hostname    string              `json:"hostname"`
	Cwd         string              `json:"cwd"`
	Environment map[string]string   `json:"environment"`
	Dumpable    int                 `json:"dumpable"`
	NoNewPrivs  int                 `json:"no_new_privs"`
	Mounts      []PostureMount      `json:"mounts"`
	Descriptors map[string]string   `json:"descriptors"`
	Writable    []string            `json:"writable"`
	RootEntries []string            `json:"root_entries"`
	ProcEntries []string            `json:"proc_entries"` // that show something, processes aside
	PIDs        []int               `json:"pids"`
	Rlimits     map[string][2]int64 `json:"rlimits"`
	Space       map[string]*Space   `json:"space"`
	Attempts    map[string]string   `json:"attempts"`
}

// PostureMount is one mount as the program sees it (proc_pid_mountinfo(5)).
type PostureMount struct {
	Target  string   `json:"target"`
	Options []string `json:"options"`
	Type    string   `json:"type"`
	Super   []string `json:"super"`
}

// Space is the size of a file system.
type Space struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

// LookInside runs the posture program in a sandbox and returns what it saw.
func LookInside(ctx context.Context, sb Sandbox, limits sandbox.Limits) (Posture, error) {
	stop := context.AfterFunc(ctx, func() { _ = sb.Kill() })
	defer stop()
	spec := &sandbox.Spec{Program: &postureProgram}
	end, err := sb.Converse(pyrunner.NewRequest(spec, sandbox.ModeScript, limits)).Run()
	if err != nil {
		return Posture{}, fmt.Errorf("look inside: %w", err)
	}
	if !end.Outcome.Exited || end.Outcome.ExitCode != 0 {
		return Posture{}, fmt.Errorf("look inside: the posture program ended with code %d, signal %d: %s",
			end.Outcome.ExitCode, end.Outcome.Signal, strings.TrimSpace(end.Stderr.Text()))
	}
	var p Posture
	if err := json.Unmarshal(end.Stdout.Head, &p); err != nil {
		return Posture{}, fmt.Errorf("look inside: %w", err)
	}
	return p, nil
}

// removeTimeout bounds the removal of a sandbox that was only looked at.
const removeTimeout = 30 * time.Second

// Examine makes a sandbox, looks at it from inside and removes it: how engines
// probe themselves.
func Examine(ctx context.Context, limits sandbox.Limits, create func(context.Context) (Sandbox, error)) (_ Posture, err error) {
	sb, err := create(ctx)
	if err != nil {
		return Posture{}, err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, sb.Destroy(clean))
	}()
	return LookInside(ctx, sb, limits)
}

// LandlockReport is the layer of an engine that confines with the given ABI,
// and whose sandboxes would not start if the kernel refused the ruleset.
func LandlockReport(abi int) sandbox.LayerReport {
	if abi == 0 {
		return sandbox.LayerReport{
			Layer: sandbox.LayerLandlock, State: sandbox.LayerMissing,
			Reason: "the kernel has no Landlock, or it is switched off",
			Mend:   "boot Linux 5.13 or newer with landlock in the lsm= list",
		}
	}
	return sandbox.LayerReport{Layer: sandbox.LayerLandlock, State: sandbox.LayerHeld, Reason: fmt.Sprintf("ABI %d", abi)}
}

// Layers judges the layers that can be seen from inside. own are the
// namespaces of the daemon, by the same names; firstID is the sandbox's first
// host id, 0 where it has none of its own. Layers that only the kernel's books
// show (cgroups, Landlock) are the engine's to add.
func (p Posture) Layers(own map[string]string) []sandbox.LayerReport {
	checks := []struct {
		layer sandbox.Layer
		held  bool
		saw   string
	}{
		{sandbox.LayerProcessGroup, p.SIDIsOwn, "session of another process"},
		{sandbox.LayerCleanEnv, p.cleanEnv(), "variables " + strings.Join(p.variables(), " ")},
		{sandbox.LayerScratch, slices.Contains(p.Writable, p.Cwd), "working directory " + p.Cwd + " is not writable"},
		{
			sandbox.LayerRlimits, p.Rlimits["RLIMIT_CORE"] == [2]int64{0, 0} && p.Rlimits["RLIMIT_NOFILE"][1] > 0 && p.Rlimits["RLIMIT_CPU"][1] > 0,
			fmt.Sprintf("core %v, cpu %v", p.Rlimits["RLIMIT_CORE"], p.Rlimits["RLIMIT_CPU"]),
		},
		{sandbox.LayerNoNewPrivs, p.NoNewPrivs == 1, "no_new_privs " + strconv.Itoa(p.NoNewPrivs)},
		{sandbox.LayerNotDumpable, p.Dumpable == 0, "dumpable " + strconv.Itoa(p.Dumpable)},
		{sandbox.LayerSeccomp, p.Status["Seccomp"] == "2" && p.Attempts["chroot"] == "Operation not permitted", "mode " + p.Status["Seccomp"]},
		{sandbox.LayerNoCaps, p.noCapabilities(), "effective " + p.Status["CapEff"] + ", bounding " + p.Status["CapBnd"]},
		{sandbox.LayerUserNS, p.ownNamespace(own, "user"), "the daemon's own"},
		{sandbox.LayerPIDNS, p.ownNamespace(own, "pid") && p.PPID == 1, "the daemon's own"},
		{sandbox.LayerMountNS, p.ownNamespace(own, "mnt"), "the daemon's own"},
		{sandbox.LayerNetNS, p.ownNamespace(own, "net") && p.Attempts["connect"] != "allowed", "connect " + p.Attempts["connect"]},
		{sandbox.LayerIPCNS, p.ownNamespace(own, "ipc"), "the daemon's own"},
		{sandbox.LayerUTSNS, p.ownNamespace(own, "uts") && p.Hostname == Hostname, "host name " + p.Hostname},
		{sandbox.LayerCgroupNS, p.ownNamespace(own, "cgroup"), "the daemon's own"},
		{sandbox.LayerRootfs, p.readOnlyRoot(own), "root entries " + strings.Join(p.RootEntries, " ") + ", writable " + strings.Join(p.Writable, " ")},
		{sandbox.LayerPrivateTmp, p.cappedPlaces(), "writable " + strings.Join(p.Writable, " ")},
		{sandbox.LayerMaskedProc, p.maskedProc(), "entries " + strings.Join(p.ProcEntries, " ")},
	}
	var out []sandbox.LayerReport
	for _, c := range checks {
		r := sandbox.LayerReport{Layer: c.layer, State: sandbox.LayerHeld}
		if !c.held {
			r.State, r.Reason = sandbox.LayerMissing, "seen from inside: "+c.saw
		}
		out = append(out, r)
	}
	return out
}

func (p Posture) variables() []string {
	var names []string
	for name := range p.Environment {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p Posture) cleanEnv() bool {
	var want []string
	for _, v := range Env() {
		name, _, _ := strings.Cut(v, "=")
		want = append(want, name)
	}
	for _, name := range p.variables() {
		// CPython sets LC_CTYPE itself when it coerces the C locale (PEP 538).
		if !slices.Contains(want, name) && name != "LC_CTYPE" {
			return false
		}
	}
	return true
}

func (p Posture) noCapabilities() bool {
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
		if strings.Trim(p.Status[set], "0") != "" || p.Status[set] == "" {
			return false
		}
	}
	return strings.Trim(p.Status["CapAmb"], "0") == "" // gVisor has none
}

func (p Posture) ownNamespace(own map[string]string, name string) bool {
	return p.Namespaces[name] != "" && p.Namespaces[name] != own[name]
}

// readOnlyRoot: a root of its own, which nobody writes to. Where there are no
// namespaces to see (gVisor), the mounts are those of another kernel.
func (p Posture) readOnlyRoot(own map[string]string) bool {
	readOnly := false
	for _, m := range p.Mounts {
		if m.Target == "/" { // a later one covers those before
			readOnly = slices.Contains(m.Options, "ro")
		}
	}
	return readOnly && p.Namespaces["mnt"] != own["mnt"] &&
		!slices.Contains(p.Writable, "/") && !slices.Contains(p.Writable, "/usr") && !slices.Contains(p.Writable, "/etc")
}

// maskedProc: nothing of /proc shows but processes, and links to the own one.
func (p Posture) maskedProc() bool {
	return !slices.ContainsFunc(p.ProcEntries, func(name string) bool {
		return !slices.Contains([]string{"self", "thread-self", "mounts", "net"}, name)
	})
}

// cappedPlaces: nothing may be written but three places, each with a cap on
// bytes and on inodes.
func (p Posture) cappedPlaces() bool {
	if !slices.Equal(p.Writable, []string{"/dev/shm", "/tmp", Workspace}) {
		return false
	}
	for _, path := range p.Writable {
		if s := p.Space[path]; s == nil || s.Bytes == 0 || s.Inodes == 0 || s.Bytes > 1<<40 {
			return false
		}
	}
	return true
}
