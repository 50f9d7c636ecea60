package store

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Acquire takes an image into use, by name or digest.
func (s *Store) Acquire(reference string) (*images.Use, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if host := s.cfg.Host; host != nil && (reference == HostName || reference == host.Digest) {
		return s.use(host), nil
	}
	r, err := s.find(reference)
	if err != nil {
		return nil, err
	}
	img, err := s.image(r)
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindInternal, Op: "use image", Subject: r.Digest, Err: err}
	}
	if err := s.touch(r.Digest); err != nil {
		return nil, err
	}
	return s.use(img), nil
}

// use counts. The caller holds the lock.
func (s *Store) use(img *images.Image) *images.Use {
	s.uses[img.Digest]++
	return images.NewUse(img, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.uses[img.Digest]--; s.uses[img.Digest] == 0 {
			delete(s.uses, img.Digest)
		}
		if s.images[img.Digest] != nil {
			s.index.Used[img.Digest] = now() // written with the next change
		}
	})
}

// usedExact is how exactly the time of last use is kept: a run must not wait for
// the disk each time.
const usedExact = time.Minute

// touch notes that an image is used now. The caller holds the lock.
func (s *Store) touch(digest string) error {
	if now().Sub(s.index.Used[digest]) < usedExact {
		return nil
	}
	s.index.Used[digest] = now()
	if err := s.index.write(s.root); err != nil {
		return fmt.Errorf("note use of image: %w", err)
	}
	return nil
}

// image is a stored tree as engines take it. The caller holds the lock. Its shape is
// looked up once: a run must not wait for some twenty directories to be read.
func (s *Store) image(r *Record) (*images.Image, error) {
	shape := s.shapes[r.Digest]
	if shape == nil {
		var err error
		if shape, err = s.shape(r); err != nil {
			return nil, err
		}
		s.shapes[r.Digest] = shape
	}
	img := *shape
	img.Name = r.Digest
	if names := s.describe(r).Names; len(names) > 0 {
		img.Name = names[0]
	}
	return &img, nil
}

// shape describes a stored tree: each directory and file of
// its root is bound, each link repeated. The engine makes nothing below what is bound, so
// no link of the image is followed while mounts are made.
func (s *Store) shape(r *Record) (*images.Image, error) {
	tree := path.Join(treePath(r.Digest), treeName)
	img := &images.Image{
		Digest: r.Digest, PythonVersion: r.PythonVersion,
		Interpreter: r.Interpreter, Stdlib: r.Stdlib, SitePackages: r.SitePackages, Preload: r.Preload,
	}
	entries, err := fs.ReadDir(s.root.FS(), tree)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case slices.Contains(madeDirs, name):
		case e.IsDir() && s.isEmpty(path.Join(tree, name)): // a mount is not for nothing
			img.Dirs = append(img.Dirs, "/"+name)
		case e.IsDir(), e.Type().IsRegular():
			img.Binds = append(img.Binds, images.Bind{Source: filepath.Join(s.dir, tree, name), Target: "/" + name, Dir: e.IsDir()})
		case e.Type() == fs.ModeSymlink:
			target, err := s.root.Readlink(path.Join(tree, name))
			if err != nil {
				return nil, err
			}
			img.Symlinks = append(img.Symlinks, images.Symlink{Path: "/" + name, Target: target})
		}
	}
	return img, nil
}

func (s *Store) isEmpty(dir string) bool {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	return err == nil && len(entries) == 0
}
