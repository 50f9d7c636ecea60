package native

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// profile is what the sandboxes of equal limits have in common: the spec in the
// terms of mount(2), for guest/isolate.py to carry out. A zygote is told each
// once.
type profile struct {
	Kind         string               `json:"kind"` // "profile"
	Profile      uint64               `json:"profile"`
	Forget       []uint64             `json:"forget"` // others that will not be named again
	Hostname     string               `json:"hostname"`
	Mounts       []mountCall          `json:"mounts"`
	Masked       []string             `json:"masked"`   // skipped where they do not exist
	Readonly     []string             `json:"readonly"` // likewise
	Capabilities []int                `json:"capabilities"`
	Config       pyrunner.Confinement `json:"config"`
	Supervised   bool                 `json:"supervised"`
	Groups       int                  `json:"groups"` // how many cgroups a sandbox joins
}

// orders asks the zygote for sandboxes of one profile, forked at one go. Their
// descriptors come with it, one sandbox's after the other's.
type orders struct {
	Kind      string  `json:"kind"` // "fork"
	Profile   uint64  `json:"profile"`
	Sandboxes []order `json:"sandboxes"`
	// Released are networks whose sandboxes are gone.
	Released []int `json:"released"`
}

// order is one sandbox.
type order struct {
	ID     uint64 `json:"id"`
	UIDMap string `json:"uid_map"`
	GIDMap string `json:"gid_map"`
	Ahead  bool   `json:"ahead"` // it will wait for its run
}

// mountCall is one mount(2): source, target, type, flags, data; then the uid and
// gid, inside the sandbox, whose its root becomes, or nil.
type mountCall [6]any

// Flags of mount(2) that specs name by word (linux/mount.h).
var mountFlags = map[string]int{"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}

// newProfile translates a spec.
func newProfile(spec *specs.Spec, config pyrunner.Confinement, supervised bool, groups int) (profile, error) {
	p := profile{
		Kind:     "profile",
		Hostname: spec.Hostname,
		Config:   config,
		Masked:   besideProc(spec, spec.Linux.MaskedPaths),
		Readonly: besideProc(spec, spec.Linux.ReadonlyPaths),

		Supervised: supervised,
		Groups:     groups,
	}
	for _, m := range spec.Mounts {
		options, owner := mountOwner(m)
		flags, data := mountOptions(options)
		p.Mounts = append(p.Mounts, mountCall{m.Source, m.Destination, m.Type, flags, data, owner})
	}
	var err error
	p.Capabilities, err = isolation.CapabilityNumbers(spec.Process.Capabilities.Permitted)
	return p, err
}

// besideProc leaves out what a /proc of processes only does not have
// (subset=pid, proc(5)).
func besideProc(spec *specs.Spec, paths []string) []string {
	whole := !slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool {
		return m.Destination == "/proc" && slices.Contains(m.Options, "subset=pid")
	})
	out := []string{}
	for _, p := range paths {
		if whole || !strings.HasPrefix(p, "/proc/") {
			out = append(out, p)
		}
	}
	return out
}

// newOrder asks for a sandbox with the spec's ids. firstID is its first id as
// the zygote sees it, whose own ids start at 0.
func newOrder(spec *specs.Spec, firstID uint32) order {
	return order{
		UIDMap: idMap(spec.Linux.UIDMappings, firstID),
		GIDMap: idMap(spec.Linux.GIDMappings, firstID),
	}
}

func idMap(mappings []specs.LinuxIDMapping, firstID uint32) string {
	base := slices.MinFunc(mappings, func(a, b specs.LinuxIDMapping) int { return int(a.HostID) - int(b.HostID) }).HostID
	var b strings.Builder
	for _, m := range mappings {
		fmt.Fprintf(&b, "%d %d %d\n", m.ContainerID, firstID+m.HostID-base, m.Size)
	}
	return b.String()
}

// mountOwner takes the owner out of a tmpfs's options. The mount is made before
// the sandbox's user namespace is entered, where its ids mean nothing; without
// an option it belongs to the sandbox's root. Other file systems have no owner.
func mountOwner(m specs.Mount) (rest []string, owner []int) {
	if m.Type != "tmpfs" {
		return m.Options, nil
	}
	owner = []int{isolation.SupervisorID, isolation.SupervisorID}
	for _, option := range m.Options {
		name, value, _ := strings.Cut(option, "=")
		at := slices.Index([]string{"uid", "gid"}, name)
		id, err := strconv.Atoi(value)
		if at < 0 || err != nil {
			rest = append(rest, option)
			continue
		}
		owner[at] = id
	}
	return rest, owner
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
