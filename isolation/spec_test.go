package isolation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestSpec_IsClosed(t *testing.T) {
	l := sandbox.DefaultLimits()
	s := isolation.Spec(isolation.Plan{ID: "x", Limits: l}, isolation.Host{RootPath: "/rootfs", FirstID: 1_000_000})
	if !s.Root.Readonly || !s.Process.NoNewPrivileges || s.Process.Terminal {
		t.Error("root not read-only, new privileges or a terminal")
	}
	if got := len(s.Linux.Namespaces); got != 7 {
		t.Errorf("%d namespaces, want all seven", got)
	}
	for _, n := range s.Linux.Namespaces {
		if n.Path != "" {
			t.Errorf("namespace %s is somebody else's: %s", n.Type, n.Path)
		}
	}
	for _, m := range s.Linux.UIDMappings {
		if m.HostID < 1_000_000 || m.Size != 1 {
			t.Errorf("id map %+v", m)
		}
	}
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			t.Errorf("%s is bound from the host", m.Destination)
		}
		for _, o := range []string{"nosuid", "nodev", "noexec"} {
			if !slices.Contains(m.Options, o) {
				t.Errorf("%s lacks %s", m.Destination, o)
			}
		}
		if m.Type == "tmpfs" && !strings.Contains(strings.Join(m.Options, " "), "nr_inodes=4096") {
			t.Errorf("%s has no cap on inodes: %v", m.Destination, m.Options)
		}
	}
	if r := s.Linux.Resources; *r.Memory.Limit != l.MemoryBytes || *r.Memory.Swap != l.MemoryBytes || *r.Pids.Limit != 33 {
		t.Errorf("resources: memory %d swap %d pids %d", *r.Memory.Limit, *r.Memory.Swap, *r.Pids.Limit)
	}
}
