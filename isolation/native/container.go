package native

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// ContainerName is the name under which the daemon re-executes itself to make a
// container; main must call EnterContainer when it is started so.
const ContainerName = "sandboxd-container"

// The container's descriptors: what it is to make, then what the zygote keeps.
const (
	setupFD   = 3
	bootFD    = 4
	controlFD = 5
	groupsFD  = 6 // and following
)

// container describes the zygote's surroundings to the re-executed daemon.
type container struct {
	Root        mountns.Root `json:"root"`
	Interpreter string       `json:"interpreter"`
}

// zygoteEnv is the zygote's own environment, which it takes away before it forks.
func zygoteEnv() []string {
	return []string{
		// The dynamic linker looks up every function now (ld.so(8)); else each child
		// would, for those that it is the first to call.
		"LD_BIND_NOW=1",
		// numpy's libraries would start threads when they are imported, and a fork
		// copies only the one that forks.
		"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",
	}
}

// devices are the nodes of a sandbox's /dev.
func devices() []string { return []string{"null", "zero", "full", "random", "urandom"} }

func newContainer(image *images.Image) container {
	c := container{Interpreter: image.Interpreter}
	r := &c.Root
	r.Dirs = []string{"/tmp", "/dev/shm", isolation.Workspace}
	for _, b := range image.Binds {
		r.Binds = append(r.Binds, mountns.Bind{Source: b.Source, Target: b.Target})
	}
	for _, name := range devices() {
		r.Binds = append(r.Binds, mountns.Bind{Source: "/dev/" + name, Target: "/dev/" + name, Device: true, Writable: true})
	}
	for _, f := range image.Files {
		r.Files = append(r.Files, mountns.File{Path: f.Path, Mode: f.Mode & 0o777, Data: f.Data})
	}
	for _, l := range image.Symlinks {
		r.Symlinks = append(r.Symlinks, mountns.Symlink{Path: l.Path, Target: l.Target})
	}
	for path, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		r.Symlinks = append(r.Symlinks, mountns.Symlink{Path: path, Target: target})
	}
	return c
}

// EnterContainer is the re-executed daemon's main: it makes the root it is told
// to and becomes the zygote. It returns only with an error.
//
// Preconditions: started by this package, in new namespaces.
func EnterContainer() error {
	setup := os.NewFile(setupFD, "setup")
	var c container
	if err := json.NewDecoder(setup).Decode(&c); err != nil {
		return fmt.Errorf("read container setup: %w", err)
	}
	if err := setup.Close(); err != nil {
		return err
	}
	if err := mountns.Enter(c.Root); err != nil {
		return err
	}
	args := []string{c.Interpreter, "-I", "-S", "-X", "utf8", "-c", pyrunner.ZygoteBootstrap(), strconv.Itoa(bootFD), strconv.Itoa(controlFD)}
	return mountns.Exec(c.Interpreter, args, append(isolation.Env(), zygoteEnv()...))
}
