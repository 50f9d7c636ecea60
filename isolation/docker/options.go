package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/internal/linux/seccomp"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// The labels of what is the daemon's in an Engine.
const (
	ownerLabel = "io.sandboxd.owner" // which daemon's
	imageLabel = "io.sandboxd.image" // of an image: the digest of its tree
)

// The supervisor's ends of the stream: an attachment is a pipe for each direction.
const (
	streamIn  = 0
	streamOut = 1
)

// ids are the users of one container, as the Engine counts.
type ids struct{ supervisor, program uint32 }

// idsOf gives those of a sandbox. The program's is its own in any case. Where the
// Engine maps users, or programs speak with a kernel in user space, the supervisor is
// root in the container, as in other engines, and not on the host. Elsewhere that
// would be the host's root: then it is the program's user, without capabilities, and
// out of its reach because it cannot be dumped.
func (e *Engine) idsOf(firstID uint32) ids {
	switch h := e.facts(); {
	case h.mapped:
		return ids{supervisor: isolation.SupervisorID, program: mappedBase + firstID + 1}
	case h.ownKernel: // which knows nothing of dumping
		return ids{supervisor: isolation.SupervisorID, program: e.cfg.UIDBase + firstID + 1}
	}
	return ids{supervisor: e.cfg.UIDBase + firstID, program: e.cfg.UIDBase + firstID}
}

// Mapped ids, of a range that usually has 65,536 (subuid(5)).
const (
	mappedBase = 4096
	mappedIDs  = 65_536 - mappedBase - isolation.IDsPerSandbox
)

func (i ids) apart() bool { return i.supervisor != i.program }

// capabilities that the supervisor starts with. With the last it empties its
// bounding set, and drops it.
func (i ids) capabilities() []string {
	if !i.apart() {
		return nil
	}
	return append(isolation.Capabilities(), "CAP_SETPCAP")
}

// options are what a container is created with.
type options struct {
	config *container.Config
	host   *container.HostConfig
}

// options describes one container: the sandbox that isolation.Spec describes, in
// the words of the Engine's API. What that has no words for is told beside each.
func (e *Engine) options(img *dockerImage, l sandbox.Limits, id ids) (options, error) {
	s := isolation.Spec(isolation.Plan{Limits: l}, isolation.Host{
		RootPath: "/",
		Args: []string{
			img.interpreter, "-I", "-S", "-X", "utf8", "-c", pyrunner.Bootstrap(), strconv.Itoa(streamIn), strconv.Itoa(streamIn),
		},
	})
	filter, err := json.Marshal(seccomp.SupervisorSpec())
	if err != nil {
		return options{}, fmt.Errorf("describe container: %w", err)
	}
	o := options{
		config: &container.Config{
			Image: img.id, Hostname: s.Hostname, Entrypoint: s.Process.Args, Env: environment(s.Process.Env, img.env),
			User: fmt.Sprintf("%d:%d", id.supervisor, id.supervisor), WorkingDir: s.Process.Cwd,
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			NetworkDisabled: true, StopTimeout: new(int),
			// An image's own would be executed in the container, now and then.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      map[string]string{ownerLabel: e.cfg.Owner},
		},
		host: &container.HostConfig{
			Runtime: e.cfg.Runtime, ReadonlyRootfs: s.Root.Readonly, Tmpfs: tmpfs(s.Mounts, id.program),
			NetworkMode: network.NetworkNone, IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate,
			CapDrop: []string{"ALL"}, CapAdd: id.capabilities(),
			SecurityOpt:   []string{"no-new-privileges", "seccomp=" + string(filter)},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Init:          new(bool),
			// Its /proc is a whole one; /sys has the places of what is not mounted there.
			MaskedPaths:   append(isolation.ProcFiles(), "/sys"),
			ReadonlyPaths: s.Linux.ReadonlyPaths,
			Resources:     e.resources(l),
		},
	}
	return o, nil
}

// environment is the sandbox's whole. A name alone takes away what the image or the
// Engine would add.
func environment(own, image []string) []string {
	env := append(slices.Clone(own), "HOSTNAME")
	for _, v := range image {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			env = append(env, name)
		}
	}
	return env
}

// tmpfs gives the writable places of a spec, and empties what the Engine would put
// into every container: /dev with its terminals and queues, and /sys.
func tmpfs(mounts []specs.Mount, user uint32) map[string]string {
	out := map[string]string{
		"/dev":           "dev,nosuid,noexec,mode=755,size=65536,nr_inodes=64,ro",
		"/sys":           "nosuid,nodev,noexec,mode=555,size=4096,nr_inodes=4,ro",
		"/sys/fs/cgroup": "nosuid,nodev,noexec,mode=555,size=4096,nr_inodes=1,ro",
	}
	for _, m := range mounts {
		if m.Type != "tmpfs" {
			continue
		}
		words := slices.Clone(m.Options)
		for i, w := range words {
			// The program's id in the spec is that of a sandbox with ids of its own.
			if name, _, _ := strings.Cut(w, "="); name == "uid" || name == "gid" {
				words[i] = fmt.Sprintf("%s=%d", name, user)
			}
		}
		out[m.Destination] = strings.Join(words, ",")
	}
	return out
}

// resources are the limits that the kernel holds for the whole container.
func (e *Engine) resources(l sandbox.Limits) container.Resources {
	tasks := e.tasks(l)
	return container.Resources{
		Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes, // memory and swap together
		PidsLimit: &tasks,
		Ulimits:   []*container.Ulimit{{Name: "core"}, {Name: "msgqueue"}},
	}
}

// labels are those of an image of the daemon's own.
func (e *Engine) labels(digest string) map[string]string {
	return map[string]string{ownerLabel: e.cfg.Owner, imageLabel: digest}
}

// changes are labels as the Engine takes them with an image.
func changes(labels map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("LABEL %s=%q", name, labels[name]))
	}
	return out
}
