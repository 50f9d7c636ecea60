package catalog

import (
	"errors"
	"path"
	"slices"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// allows tells whether runs may name an image. Patterns are held against what the
// image is called and not against what a request says, so that a digest is no way
// around the list.
func (c *Catalog) allows(image *sandbox.Image) bool {
	if c.cfg.Allowed == nil || c.isDefault(image) {
		return true
	}
	return slices.ContainsFunc(c.cfg.Allowed, func(pattern string) bool {
		return slices.ContainsFunc(append([]string{image.Digest}, image.Names...), func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}

// isDefault tells whether runs that name none get the image. Without a default it
// is the machine's own, which is what engines have.
func (c *Catalog) isDefault(image *sandbox.Image) bool {
	switch wanted := c.cfg.Default; wanted {
	case "":
		return image.IsHost()
	case image.Digest:
		return true
	default:
		return slices.Contains(image.Names, wanted)
	}
}

// rootUID may do everything on the machine anyway.
const rootUID = 0

// manage refuses callers who may not change what is stored. Groups are those that
// the kernel has recorded for the connection: the primary one.
func (c *Catalog) manage(caller tenants.Caller) error {
	if caller.UID == rootUID || slices.Contains(c.cfg.ManagerUIDs, caller.UID) || slices.Contains(c.cfg.ManagerGIDs, caller.GID) {
		return nil
	}
	return &sandbox.Error{
		Kind: sandbox.KindDenied, Op: "manage images", Subject: "images",
		Err:  errors.New("only root, the daemon's own user and managers may bring in and remove images"),
		Mend: "add your user id to manager_uids, or your primary group's to manager_gids, in the section images of the configuration",
	}
}
