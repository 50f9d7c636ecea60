package native

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// order is what the zygote is asked to fork: the spec in the terms of mount(2)
// and the id maps, for guest/isolate.py to carry out.
type order struct {
	ID           uint64               `json:"id"`
	Hostname     string               `json:"hostname"`
	UIDMap       string               `json:"uid_map"`
	GIDMap       string               `json:"gid_map"`
	Mounts       []mountCall          `json:"mounts"`
	Masked       []string             `json:"masked"`   // skipped where they do not exist
	Readonly     []string             `json:"readonly"` // likewise
	Capabilities []int                `json:"capabilities"`
	Config       pyrunner.Confinement `json:"config"`
}

// mountCall is one mount(2): source, target, type, flags, data.
type mountCall [5]any

// Flags of mount(2) that specs name by word (linux/mount.h).
var mountFlags = map[string]int{"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}

// Numbers of the capabilities that specs name (linux/capability.h).
var capabilityNumbers = map[string]int{
	"CAP_DAC_READ_SEARCH": 2, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7,
}

// newOrder translates a spec. firstID is the sandbox's first id as the zygote
// sees it, whose own ids start at 0.
func newOrder(spec *specs.Spec, firstID uint32, config pyrunner.Confinement) (order, error) {
	o := order{
		Hostname: spec.Hostname,
		UIDMap:   idMap(spec.Linux.UIDMappings, firstID),
		GIDMap:   idMap(spec.Linux.GIDMappings, firstID),
		Config:   config,
		Masked:   spec.Linux.MaskedPaths,
		Readonly: spec.Linux.ReadonlyPaths,
	}
	for _, m := range spec.Mounts {
		flags, data := mountOptions(m.Options)
		o.Mounts = append(o.Mounts, mountCall{m.Source, m.Destination, m.Type, flags, data})
	}
	for _, name := range spec.Process.Capabilities.Permitted {
		number, ok := capabilityNumbers[name]
		if !ok {
			return order{}, fmt.Errorf("capability %s has no number here", name)
		}
		o.Capabilities = append(o.Capabilities, number)
	}
	return o, nil
}

func idMap(mappings []specs.LinuxIDMapping, firstID uint32) string {
	base := slices.MinFunc(mappings, func(a, b specs.LinuxIDMapping) int { return int(a.HostID) - int(b.HostID) }).HostID
	var b strings.Builder
	for _, m := range mappings {
		fmt.Fprintf(&b, "%d %d %d\n", m.ContainerID, firstID+m.HostID-base, m.Size)
	}
	return b.String()
}

// mountOptions parts the flags of mount(2) from the file system's own data.
func mountOptions(options []string) (flags int, data string) {
	var rest []string
	for _, o := range options {
		if f, ok := mountFlags[o]; ok {
			flags |= f
		} else {
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}
