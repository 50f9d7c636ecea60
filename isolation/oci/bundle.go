package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/internal/linux/seccomp"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// bundleVersion is the specification that the oldest runtime here reads. Nothing
// of a later one is used.
const bundleVersion = "1.0.2"

// streamFD is the supervisor's end of the stream: standard input, because not
// every runtime passes on others.
const streamFD = "0"

// dirs are the engine's own places.
type dirs struct{ state, bundles, rootfs string }

func (e *Engine) dirs() dirs {
	in := func(name string) string { return filepath.Join(e.cfg.Dir, name) }
	return dirs{state: in("state"), bundles: in("bundles"), rootfs: in("rootfs")}
}

// spec describes one container: the sandbox that isolation.Spec describes, and
// what a runtime has to be told beside.
func (e *Engine) spec(r *rootfs, l sandbox.Limits, name string, firstID uint32) *specs.Spec {
	s := isolation.Spec(isolation.Plan{Limits: l}, isolation.Host{
		RootPath: r.path(),
		Args: []string{
			r.image.Interpreter, "-I", "-S", "-X", "utf8", "-c", pyrunner.Bootstrap(), streamFD, streamFD,
		},
		FirstID:     e.cfg.UIDBase + firstID,
		CgroupsPath: e.cfg.Cgroups.Path(name),
	})
	s.Version = bundleVersion
	s.Mounts = append([]specs.Mount{devices()}, s.Mounts...)
	// With this one the supervisor empties its bounding set, and drops it.
	caps := append(isolation.Capabilities(), "CAP_SETPCAP")
	s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	tasks := e.tasks(l)
	s.Linux.Resources.Pids.Limit = &tasks
	// The runtime opens its own list of harmless ones after this.
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	if !e.traits.ownKernel { // the other filters by itself what reaches the host
		s.Linux.Seccomp = seccomp.SupervisorSpec()
	}
	return s
}

// devices is the sandbox's /dev, which runtimes fill, and close after that.
func devices() specs.Mount {
	return specs.Mount{
		Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
		Options: []string{"nosuid", "noexec", "mode=755", "size=65536", "nr_inodes=64", "ro"},
	}
}

// writeBundle makes the directory that a runtime is given.
func (e *Engine) writeBundle(name string, s *specs.Spec) (dir string, err error) {
	dir = filepath.Join(e.dirs().bundles, name)
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("write bundle: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("write bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		return "", fmt.Errorf("write bundle: %w", err)
	}
	return dir, nil
}
