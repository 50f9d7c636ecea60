package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Policy says what is garbage. Images in use never are.
type Policy struct {
	// UnusedFor makes garbage of images that were not used for so long; 0 of none.
	UnusedFor time.Duration
	// Bytes is what all images may take; beyond it, those not used for longest go.
	// 0 is no bound.
	Bytes int64
	// Keep are names and digests that stay: those that a configuration names.
	Keep []string
}

// GC removes garbage and tells what it removed, also beside an error.
func (s *Store) GC(ctx context.Context, p Policy) (removed []Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.bytes()
	for _, r := range s.collectable(p) {
		if s.images[r.Digest] == nil || s.uses[r.Digest] > 0 {
			continue // changed while others were removed
		}
		old := p.UnusedFor > 0 && time.Since(r.LastUsed) >= p.UnusedFor
		if !old && (p.Bytes == 0 || left <= p.Bytes) {
			continue
		}
		if ctx.Err() != nil {
			return removed, &sandbox.Error{Kind: sandbox.KindCanceled, Op: "collect images", Err: context.Cause(ctx)}
		}
		if err := s.remove(r.Digest); err != nil {
			return removed, err
		}
		left -= r.Bytes
		removed = append(removed, r)
	}
	return removed, nil
}

// collectable lists what nothing keeps, the one not used for longest first.
func (s *Store) collectable(p Policy) []Record {
	keep := map[string]bool{}
	for _, reference := range p.Keep {
		if r, err := s.find(reference); err == nil {
			keep[r.Digest] = true
		}
	}
	var out []Record
	for _, digest := range slices.Sorted(maps.Keys(s.images)) {
		if !keep[digest] && s.uses[digest] == 0 {
			out = append(out, s.describe(s.images[digest]))
		}
	}
	slices.SortStableFunc(out, func(a, b Record) int { return a.LastUsed.Compare(b.LastUsed) })
	return out
}

// Remove removes a name and, with its last name or by its digest, the image.
func (s *Store) Remove(reference string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reference == HostName {
		return sandbox.Errorf(sandbox.KindConflict, "remove image", HostName, "it is the machine's own Python and not stored")
	}
	r, err := s.find(reference)
	if err != nil {
		return err
	}
	_, named := s.index.Names[reference]
	if named && len(s.describe(r).Names) > 1 {
		delete(s.index.Names, reference)
		return s.index.write(s.root)
	}
	if n := s.uses[r.Digest]; n > 0 {
		err := sandbox.Errorf(sandbox.KindConflict, "remove image", reference, "it is in use (%d)", n)
		err.Mend = "try again when its runs have ended; engines keep sandboxes of it ready for some minutes more"
		return err
	}
	return s.remove(r.Digest)
}

// remove takes an image out. The index goes last: it forgets by itself what it
// names and is gone. The caller holds the lock, which is let go of while files
// are removed, and has checked that nobody uses the image.
func (s *Store) remove(digest string) error {
	doomed, err := s.discard(strings.TrimPrefix(digest, digestPrefix))
	if doomed == "" {
		return fmt.Errorf("remove image: %w", err)
	}
	delete(s.images, digest)
	delete(s.shapes, digest)
	s.index.forget(digest)
	err = errors.Join(err, s.index.write(s.root))
	s.mu.Unlock()
	defer s.mu.Lock()
	if err = errors.Join(err, s.root.RemoveAll(doomed)); err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	return nil
}

// discard takes a directory out of trees, for good, and says where it is now, ""
// where it still is in its place.
func (s *Store) discard(dir string) (string, error) {
	doomed := path.Join(tmpDir, "removed-"+rand.Text())
	if err := s.root.Rename(path.Join(treesDir, dir), doomed); err != nil {
		return "", err
	}
	return doomed, syncDir(s.root, treesDir)
}

// Verify reads an image's tree and compares it with its digest.
func (s *Store) Verify(ctx context.Context, reference string) error {
	use, err := s.Acquire(reference)
	if err != nil {
		return err
	}
	defer use.Release()
	if use.Image == s.cfg.Host {
		return nil
	}
	root, err := s.root.OpenRoot(path.Join(treePath(use.Image.Digest), treeName))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	content, err := unpack.Measure(ctx, root)
	if err != nil {
		return err
	}
	if content.Digest != use.Image.Digest {
		return sandbox.Errorf(sandbox.KindInternal, "verify image", use.Image.Digest, "its tree was changed: it now has %s", content.Digest)
	}
	return nil
}
