package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

func TestNewOrder_CarriesTheSpec(t *testing.T) {
	l := sandbox.DefaultLimits()
	spec := isolation.Spec(isolation.Plan{ID: "x", Limits: l}, isolation.Host{RootPath: "/", FirstID: 1_000_400})
	o := newOrder(spec, 400)
	p, err := newProfile(spec, pyrunner.Confinement{}, false, 3)
	if err != nil {
		t.Fatal(err)
	}
	// Seen from the zygote's own user namespace, which starts at the engine's
	// base.
	if want := "0 400 1\n1000 401 1\n1001 402 1\n"; o.UIDMap != want || o.GIDMap != want {
		t.Errorf("maps %q %q", o.UIDMap, o.GIDMap)
	}
	want := []mountCall{
		{"proc", "/proc", "proc", 2 | 4 | 8, "subset=pid,hidepid=2", []int(nil)},
		{"tmpfs", "/tmp", "tmpfs", 2 | 4 | 8, "size=16777216,nr_inodes=4096,mode=1777", []int{0, 0}},
		{"tmpfs", "/dev/shm", "tmpfs", 2 | 4 | 8, "size=16777216,nr_inodes=4096,mode=1777", []int{0, 0}},
		{"tmpfs", "/workspace", "tmpfs", 2 | 4 | 8, "size=16777216,nr_inodes=4096,mode=0755", []int{1000, 1000}},
	}
	if diff := cmp.Diff(want, p.Mounts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{2, 5, 6, 7}, p.Capabilities); diff != "" {
		t.Error(diff)
	}
}

func TestNewProfile_RefusesUnknownCapability(t *testing.T) {
	spec := isolation.Spec(isolation.Plan{}, isolation.Host{})
	spec.Process.Capabilities.Permitted = []string{"CAP_SYS_ADMIN"}
	if _, err := newProfile(spec, pyrunner.Confinement{}, false, 3); err == nil {
		t.Error("a capability that the engine does not know was dropped silently")
	}
}
