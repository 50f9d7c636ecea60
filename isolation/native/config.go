package native

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/isolation"
)

// Config is what the engine needs. What may be left out says so.
type Config struct {
	Image     *images.Image   // of runs that name none; it must stay until the engine is closed
	Images    images.Source   // where the others are; nil for none
	Cgroups   *cgroup.Manager // of a parent that nobody else uses
	Arch      string          // GOARCH of the images' interpreters
	Log       *slog.Logger
	UIDBase   uint32   // first host id; blocks of isolation.IDsPerSandbox from there on
	Sandboxes uint32   // live at once, at most, ready ones included
	Ready     int      // sandboxes kept ready for the next runs of a preload set, at most; 0 for none
	Preload   []string // modules that every zygote imports; may be left out

	// ReadyBytes bounds what the ready sandboxes of a preload set hold of memory;
	// 0 leaves it to Ready.
	ReadyBytes int64
	// PreloadSets are modules that deserve a zygote of their own, which has
	// imported them: for programs whose text names one.
	PreloadSets []string

	slowCalls bool // as on an architecture that calls.go has no code for
}

// ids is the number of host ids: the zygote's block and one for each sandbox.
func (c Config) ids() uint32 {
	// The guest's own ids (isolation.ProgramID and others) are mapped in each
	// child's namespace, so the range needs no more than the blocks.
	return (c.Sandboxes + 1) * isolation.IDsPerSandbox
}

func (c Config) validate() error {
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("native engine: %s is missing", name))
		}
	}
	require(c.Image != nil, "image")
	require(c.Cgroups != nil, "cgroup manager")
	require(c.Arch != "", "architecture")
	require(c.Log != nil, "logger")
	require(c.Sandboxes > 0, "number of sandboxes")
	// Below are the ids of the machine's own users (login.defs(5)); 65534 in
	// particular may be nobody's, and the file system's reserve is often its.
	if c.UIDBase < 100_000 {
		errs = append(errs, fmt.Errorf("native engine: uid_base %d is below 100000", c.UIDBase))
	}
	return errors.Join(errs...)
}
