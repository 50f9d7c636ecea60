package store

import (
	"fmt"
	"strings"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/sandbox"
)

// madeDirs are directories at the root that a sandbox has of its own. In a tree
// they are empty mount points.
var madeDirs = []string{"dev", "proc", "run", "sys", "tmp", "workspace"}

// maxAtRoot bounds what an image has at its root: each entry is a mount of every
// container that is made of it. Distributions have some 20.
const maxAtRoot = 128

// dress gives a tree what every sandbox has, in the place of what the image
// came with, so that the tree is a root file system to be mounted read-only.
func dress(t *unpack.Tree) error {
	if n := len(t.Names("/")); n > maxAtRoot {
		return &sandbox.Error{
			Kind: sandbox.KindInvalid, Op: "check image", Err: fmt.Errorf("%d entries at its root; %d are allowed", n, maxAtRoot),
			Mend: "put them in a directory",
		}
	}
	for _, dir := range madeDirs {
		if err := t.Remove(dir); err != nil {
			return fmt.Errorf("dress image: %w", err)
		}
		if err := t.MakeDir(dir); err != nil {
			return fmt.Errorf("dress image: %w", err)
		}
	}
	for _, f := range images.EtcFiles() {
		if err := t.MakeFile(strings.TrimPrefix(f.Path, "/"), f.Data); err != nil {
			return fmt.Errorf("dress image: %w", err)
		}
	}
	return nil
}
