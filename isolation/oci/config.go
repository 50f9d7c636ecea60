package oci

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
)

// Config is what an engine needs. Program, MinVersion, Images and Ready may be left
// out.
type Config struct {
	Runtime    string // runc, crun or runsc; also the engine's name
	Program    string // its path; looked for in the system's directories when empty
	MinVersion string // instead of the version that was tested

	Image   *images.Image   // of runs that name none; it must stay until the engine is closed
	Images  images.Source   // where the others are; nil for none
	Cgroups *cgroup.Manager // of a parent that nobody else uses
	Arch    string          // GOARCH of the images' interpreters
	Log     *slog.Logger
	// Dir is for bundles and the runtime's state; nobody else's. Container root has
	// to pass through it, so every directory above must be passable for others.
	Dir       string
	UIDBase   uint32 // first host id; blocks of isolation.IDsPerSandbox from there on
	Sandboxes uint32 // live at once, at most, ready ones included
	Ready     int    // sandboxes kept ready at most
}

func (c *Config) validate() error {
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("oci engine: %s is missing", name))
		}
	}
	require(c.Image != nil, "image")
	require(c.Cgroups != nil, "cgroup manager")
	require(c.Arch != "", "architecture")
	require(c.Log != nil, "logger")
	require(c.Sandboxes > 0, "number of sandboxes")
	require(filepath.IsAbs(c.Dir), "directory")
	require(c.Program == "" || filepath.IsAbs(c.Program), "absolute path of the runtime")
	if c.UIDBase < 100_000 { // below are the machine's own users
		errs = append(errs, fmt.Errorf("oci engine: uid_base %d is below 100000", c.UIDBase))
	}
	if c.MinVersion != "" {
		if _, err := parseVersion(c.MinVersion); err != nil {
			errs = append(errs, fmt.Errorf("oci engine: least version: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) least(t traits) string { return cmp.Or(c.MinVersion, t.least) }
