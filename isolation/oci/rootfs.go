package oci

import (
	"errors"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/mountns"
	"github.com/sandboxd/sandboxd/isolation"
)

// Rootfs is what sandboxes run in: a tree that is there, or parts of the host's
// file system that are put together.
type Rootfs struct {
	// Path is a tree on the host, which is not written to. It has the directories
	// /dev, /proc, /tmp (of mode 1777, which runc gives to what it mounts there) and
	// isolation.Workspace, empty, and can be read by others.
	Path string
	// Parts make the tree where there is no Path.
	Parts *mountns.Root
	// Mounts are the image's own, beside those of every sandbox.
	Mounts []specs.Mount

	Interpreter  string   // path inside
	SitePackages []string // directories inside

	Description string // name and digest
	Python      string // version
}

// RootfsOf is an image that is described by its parts: the host's or a stored one.
func RootfsOf(image *images.Image) Rootfs {
	parts := mountns.Root{
		Dirs:   append([]string{"/dev", isolation.Workspace}, image.Dirs...),
		Sticky: []string{"/tmp"},
	}
	for _, b := range image.Binds {
		parts.Binds = append(parts.Binds, mountns.Bind{Source: b.Source, Target: b.Target})
	}
	for _, f := range image.Files {
		parts.Files = append(parts.Files, mountns.File{Path: f.Path, Mode: f.Mode & 0o777, Data: f.Data})
	}
	for _, l := range image.Symlinks {
		parts.Symlinks = append(parts.Symlinks, mountns.Symlink{Path: l.Path, Target: l.Target})
	}
	return Rootfs{
		Parts: &parts, Interpreter: image.Interpreter, SitePackages: image.SitePackages,
		Description: image.Name + " " + image.Digest, Python: image.PythonVersion,
	}
}

func (r *Rootfs) validate() error {
	var errs []error
	if (r.Path == "") == (r.Parts == nil) {
		errs = append(errs, errors.New("oci engine: the image is either a path or parts of the host"))
	}
	if r.Path != "" && !filepath.IsAbs(r.Path) {
		errs = append(errs, errors.New("oci engine: the image's path is not absolute"))
	}
	if !filepath.IsAbs(r.Interpreter) {
		errs = append(errs, errors.New("oci engine: the image's interpreter is missing"))
	}
	return errors.Join(errs...)
}

// rootPath is where runtimes find the tree, in the engine's mount namespace.
func (e *Engine) rootPath() string {
	if e.cfg.Rootfs.Path != "" {
		return e.cfg.Rootfs.Path
	}
	return e.dirs().rootfs
}
