package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Reap implements isolation.Engine. What a dead daemon leaves is in its cgroups
// and below its directory; its mounts went with it.
func (e *Engine) Reap(ctx context.Context) error {
	errs := []error{e.cfg.Cgroups.Reap(ctx)}
	d := e.dirs()
	for dir, remove := range map[string]func(string) error{
		d.bundles: os.RemoveAll, d.state: os.RemoveAll,
		// The places of mounts, empty: no more is removed, should one be there after all.
		d.rootfs: os.Remove,
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, entry := range entries {
			errs = append(errs, remove(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
