package unpack

import (
	"bytes"
	"os"
	"path"
	"time"
)

// MakeDir makes a directory, in the place of whatever is there. What is above it
// must be directories or missing.
func (t *Tree) MakeDir(name string) error {
	_, err := t.directory(name)
	return err
}

// MakeFile makes a file, in the place of whatever is there.
func (t *Tree) MakeFile(name string, data []byte) error {
	return t.file(name, fileMode, time.Unix(0, 0), int64(len(data)), bytes.NewReader(data))
}

// Remove removes what is at name, if anything is.
func (t *Tree) Remove(name string) error {
	parent, err := t.parentOf(name)
	if err != nil || parent == nil {
		return err
	}
	base := path.Base(name)
	if _, ok := parent.children[base]; !ok {
		return nil
	}
	return t.remove(name, parent, base)
}

// Open opens a file by a path as Resolve returns it.
func (t *Tree) Open(real string) (*os.File, error) { return t.root.Open(real) }

// Seal closes the tree's own directory to other owners' writing.
func (t *Tree) Seal() error { return t.root.Chmod(".", dirMode) }
