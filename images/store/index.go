package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const indexFile = "index.json"

// maxIndex bounds the store's own documents, in case they are not.
const maxIndex = 16 << 20

// index is what changes about images. It may be older than trees: what it says
// of images that are gone is forgotten.
type index struct {
	Names map[string]string    `json:"names"` // to digests
	Used  map[string]time.Time `json:"used"`  // by digest
}

func readIndex(root *os.Root, images map[string]*Record) (index, error) {
	var x index
	err := readJSON(root, indexFile, &x)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return index{}, err
	}
	if x.Names == nil {
		x.Names = map[string]string{}
	}
	if x.Used == nil {
		x.Used = map[string]time.Time{}
	}
	for name, digest := range x.Names {
		if images[digest] == nil {
			delete(x.Names, name)
		}
	}
	for digest := range x.Used {
		if images[digest] == nil {
			delete(x.Used, digest)
		}
	}
	return x, nil
}

func (x *index) write(root *os.Root) error { return writeJSON(root, indexFile, x) }

func (x *index) forget(digest string) {
	delete(x.Used, digest)
	for name, of := range x.Names {
		if of == digest {
			delete(x.Names, name)
		}
	}
}

func readJSON(root *os.Root, name string, into any) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// writeJSON puts a document in its place whole, on the disk before it returns.
func writeJSON(root *os.Root, name string, v any) (err error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	next := name + ".next"
	f, err := root.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := root.Rename(next, name); err != nil {
		return err
	}
	return syncDir(root, ".")
}

// syncDir makes renames in a directory last (fsync(2)).
func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
