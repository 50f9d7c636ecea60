package isolation_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// good is the posture of a program that everything holds.
func good() isolation.Posture {
	const none = "0000000000000000"
	env := map[string]string{"PATH": "/usr/bin", "HOME": isolation.Workspace, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp"}
	spaces := map[string]*isolation.Space{}
	for _, p := range []string{"/tmp", "/dev/shm", isolation.Workspace} {
		spaces[p] = &isolation.Space{Bytes: 16 << 20, Inodes: 4096}
	}
	return isolation.Posture{
		Status: map[string]string{
			"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
		},
		Namespaces: map[string]string{"user": "user:[2]", "pid": "pid:[2]", "mnt": "mnt:[2]", "net": "net:[2]", "ipc": "ipc:[2]", "uts": "uts:[2]", "cgroup": "cgroup:[2]"},
		PID:        2, PPID: 1, SIDIsOwn: true, NoNewPrivs: 1, Hostname: isolation.Hostname, Cwd: isolation.Workspace, Environment: env,
		Writable: []string{"/dev/shm", "/tmp", isolation.Workspace}, RootEntries: []string{"dev", "etc", "usr"},
		ProcEntries: []string{"self", "thread-self"}, Space: spaces,
		Mounts:   []isolation.PostureMount{{Target: "/", Options: []string{"ro", "nosuid"}, Type: "tmpfs"}},
		Rlimits:  map[string][2]int64{"RLIMIT_CORE": {0, 0}, "RLIMIT_NOFILE": {64, 64}, "RLIMIT_CPU": {12, 12}},
		Attempts: map[string]string{"chroot": "Operation not permitted", "connect": "Network is unreachable"},
	}
}

func missing(p isolation.Posture, own map[string]string) []sandbox.Layer {
	var out []sandbox.Layer
	for _, r := range p.Layers(own) {
		if r.State != sandbox.LayerHeld {
			out = append(out, r.Layer)
		}
	}
	return out
}

// TestPosture_SeesEachWeakness: taking away one thing makes exactly its layer
// missing.
func TestPosture_SeesEachWeakness(t *testing.T) {
	own := map[string]string{"user": "user:[1]", "pid": "pid:[1]", "mnt": "mnt:[1]", "net": "net:[1]", "ipc": "ipc:[1]", "uts": "uts:[1]", "cgroup": "cgroup:[1]"}
	if got := missing(good(), own); got != nil {
		t.Fatalf("a good posture misses %v", got)
	}
	for _, c := range []struct {
		name   string
		weaken func(*isolation.Posture)
		want   sandbox.Layer
	}{
		{"session", func(p *isolation.Posture) { p.SIDIsOwn = false }, sandbox.LayerProcessGroup},
		{"variable", func(p *isolation.Posture) { p.Environment["SECRET"] = "x" }, sandbox.LayerCleanEnv},
		{"core dumps", func(p *isolation.Posture) { p.Rlimits["RLIMIT_CORE"] = [2]int64{-1, -1} }, sandbox.LayerRlimits},
		{"new privileges", func(p *isolation.Posture) { p.NoNewPrivs = 0 }, sandbox.LayerNoNewPrivs},
		{"dumpable", func(p *isolation.Posture) { p.Dumpable = 1 }, sandbox.LayerNotDumpable},
		{"no filter", func(p *isolation.Posture) { p.Status["Seccomp"] = "0" }, sandbox.LayerSeccomp},
		{"idle filter", func(p *isolation.Posture) { p.Attempts["chroot"] = "allowed" }, sandbox.LayerSeccomp},
		{"capability", func(p *isolation.Posture) { p.Status["CapEff"] = "0000000000000080" }, sandbox.LayerNoCaps},
		{"bounding set", func(p *isolation.Posture) { p.Status["CapBnd"] = "000001ffffffffff" }, sandbox.LayerNoCaps},
		{"unreadable set", func(p *isolation.Posture) { p.Status["CapPrm"] = "" }, sandbox.LayerNoCaps},
		{"user namespace", func(p *isolation.Posture) { p.Namespaces["user"] = own["user"] }, sandbox.LayerUserNS},
		{"pid namespace", func(p *isolation.Posture) { p.Namespaces["pid"] = own["pid"] }, sandbox.LayerPIDNS},
		{"mount namespace", func(p *isolation.Posture) { p.Namespaces["mnt"] = "" }, sandbox.LayerMountNS},
		{"network", func(p *isolation.Posture) { p.Attempts["connect"] = "allowed" }, sandbox.LayerNetNS},
		{"ipc namespace", func(p *isolation.Posture) { p.Namespaces["ipc"] = own["ipc"] }, sandbox.LayerIPCNS},
		{"host name", func(p *isolation.Posture) { p.Hostname = "prod-7" }, sandbox.LayerUTSNS},
		{"cgroup namespace", func(p *isolation.Posture) { p.Namespaces["cgroup"] = own["cgroup"] }, sandbox.LayerCgroupNS},
		{"writable root", func(p *isolation.Posture) { p.Mounts[0].Options = []string{"rw", "nosuid"} }, sandbox.LayerRootfs},
		{"uncovered root", func(p *isolation.Posture) {
			p.Mounts = append(p.Mounts, isolation.PostureMount{Target: "/", Options: []string{"rw"}})
		}, sandbox.LayerRootfs},
		{"no size", func(p *isolation.Posture) { p.Space["/tmp"].Bytes = 0 }, sandbox.LayerPrivateTmp},
		{"no inode cap", func(p *isolation.Posture) { p.Space["/dev/shm"].Inodes = 0 }, sandbox.LayerPrivateTmp},
		{"another place", func(p *isolation.Posture) { p.Writable = append(p.Writable, "/zzz") }, sandbox.LayerPrivateTmp},
		{"kernel's switches", func(p *isolation.Posture) { p.ProcEntries = append(p.ProcEntries, "sys") }, sandbox.LayerMaskedProc},
		{"kernel's files", func(p *isolation.Posture) { p.ProcEntries = append(p.ProcEntries, "kcore") }, sandbox.LayerMaskedProc},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := good()
			p.Status, p.Rlimits = maps.Clone(p.Status), maps.Clone(p.Rlimits)
			c.weaken(&p)
			if got := missing(p, own); !slices.Equal(got, []sandbox.Layer{c.want}) {
				t.Errorf("missing %v, want %v", got, c.want)
			}
		})
	}
}

func TestSupport_MissingNamesTheLayer(t *testing.T) {
	s := isolation.Support{Layers: []sandbox.LayerReport{
		{Layer: sandbox.LayerSeccomp, State: sandbox.LayerHeld},
		{Layer: sandbox.LayerLandlock, State: sandbox.LayerMissing, Reason: "old kernel"},
	}}
	got := s.Missing([]sandbox.Layer{sandbox.LayerSeccomp, sandbox.LayerLandlock, sandbox.LayerNetNS})
	if len(got) != 2 || got[0].Reason != "old kernel" || got[1].Layer != sandbox.LayerNetNS {
		t.Errorf("%+v", got)
	}
}
