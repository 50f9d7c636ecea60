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
	for _, dir := range []string{d.bundles, d.state} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, entry := range entries {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
