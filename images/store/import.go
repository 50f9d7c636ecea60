package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/internal/linux/filesystem"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Request says what to import. Exactly one of Path, Stream and Reference is set.
type Request struct {
	Name      string    // to give to the image; may be empty
	Path      string    // a file, or the directory of an OCI layout
	Stream    io.Reader // a file's content
	Reference string    // an image in a registry, or in the Docker Engine

	Kind   source.Kind // of Path or Stream, detected where empty; of Reference DockerEngine, or empty for a registry
	Origin string      // of Stream, for people: where it comes from; else its form is said
	Tag    string      // chooses among several images in Path or Stream

	Progress func(Progress) // may be nil
}

func (r Request) check() error {
	set := 0
	for _, is := range []bool{r.Path != "", r.Stream != nil, r.Reference != ""} {
		if is {
			set++
		}
	}
	if set != 1 {
		return sandbox.Errorf(sandbox.KindInvalid, "import image", "", "exactly one of path, stream and reference is needed")
	}
	if r.Kind == source.DockerEngine && r.Reference == "" || r.Reference != "" && r.Kind != source.DockerEngine && r.Kind != source.Detect {
		return sandbox.Errorf(sandbox.KindInvalid, "import image", "kind", "%q does not go with where the image is", r.Kind)
	}
	return CheckName(r.Name)
}

// Import brings an image in. One that is there already, by its content, only
// gets the name. Imports are made one after the other, so whoever hands a stream
// of somebody else's over bounds its time by the context.
func (s *Store) Import(ctx context.Context, r Request) (_ Record, err error) {
	if err := r.check(); err != nil {
		return Record{}, err
	}
	select {
	case s.imports <- struct{}{}:
		defer func() { <-s.imports }()
	case <-ctx.Done():
		return Record{}, classify(ctx, context.Cause(ctx))
	}
	work := path.Join(tmpDir, "import-"+rand.Text())
	if err := s.root.Mkdir(work, privateMode); err != nil {
		return Record{}, classify(ctx, err)
	}
	// What cannot be removed now is when the store is opened next.
	defer func() { err = errors.Join(err, s.root.RemoveAll(work)) }()
	i := importing{store: s, request: r, work: work, meter: meter{tell: r.Progress}}
	record, err := i.run(ctx)
	if err != nil {
		return Record{}, classify(ctx, err)
	}
	return record, nil
}

// classify gives an error the kind that the caller can act on.
func classify(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok && ctx.Err() == nil {
		return err
	}
	kind := sandbox.KindInternal
	switch {
	case ctx.Err() != nil:
		kind = sandbox.KindCanceled
	case filesystem.Full(err):
		kind = sandbox.KindExhausted
	}
	return &sandbox.Error{Kind: kind, Op: "import image", Err: err}
}

// importing is one import under way.
type importing struct {
	store   *Store
	request Request
	work    string // its directory: scratch files, and the image to be
	meter   meter
}

func (i *importing) run(ctx context.Context) (Record, error) {
	limits, err := i.store.room()
	if err != nil {
		return Record{}, err
	}
	i.meter.phase(PhaseFetch, 0)
	img, err := i.open(ctx, limits)
	if err != nil {
		return Record{}, err
	}
	r, err := i.build(ctx, img, limits)
	if err = errors.Join(err, img.Close()); err != nil {
		return Record{}, err
	}
	i.meter.phase(PhaseSync, 0)
	if err := writeJSON(i.store.root, path.Join(i.work, "image", recordFile), r); err != nil {
		return Record{}, err
	}
	if err := filesystem.Sync(i.store.dir); err != nil {
		return Record{}, err
	}
	return i.store.adopt(path.Join(i.work, "image"), r, i.request.Name)
}

// room is what one import may take.
func (s *Store) room() (unpack.Limits, error) {
	limits := s.cfg.Limits
	if s.cfg.Bytes == 0 {
		return limits, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.cfg.Bytes - s.bytes()
	if left <= 0 {
		return limits, &sandbox.Error{
			Kind: sandbox.KindExhausted, Op: "import image", Err: fmt.Errorf("images take %d bytes of %d", s.bytes(), s.cfg.Bytes),
			Mend: "remove images, or let garbage be collected",
		}
	}
	limits.Bytes = min(limits.Bytes, left)
	return limits, nil
}

// bytes is what all images take. The caller holds the lock.
func (s *Store) bytes() int64 {
	var n int64
	for _, r := range s.images {
		n += r.Bytes
	}
	return n
}

func (i *importing) open(ctx context.Context, limits unpack.Limits) (*source.Image, error) {
	scratch := path.Join(i.work, "scratch")
	if err := i.store.root.Mkdir(scratch, privateMode); err != nil {
		return nil, err
	}
	o := source.Options{
		Kind: i.request.Kind, Arch: i.store.cfg.Arch, Tag: i.request.Tag,
		Scratch: path.Join(i.store.dir, scratch), Bytes: limits.StreamBytes(),
	}
	switch {
	case i.request.Kind == source.DockerEngine:
		return i.export(ctx, o)
	case i.request.Reference != "":
		return i.store.cfg.Registry.Pull(ctx, i.request.Reference, o)
	case i.request.Stream == nil:
		return source.Open(i.request.Path, o)
	}
	return i.spool(ctx, i.request.Stream, o)
}

// export reads an image of the Docker Engine. Its archive is as hostile as any:
// who built the image is not known.
func (i *importing) export(ctx context.Context, o source.Options) (_ *source.Image, err error) {
	saved, err := i.store.cfg.Engine.Save(ctx, i.request.Reference)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, saved.Close()) }()
	i.meter.phase(PhaseFetch, saved.Bytes)
	o.Kind, o.ID = source.DockerArchive, saved.ID
	img, err := i.spool(ctx, saved, o)
	if err != nil {
		return nil, err
	}
	img.Origin = "Docker Engine, image " + saved.ID
	if i.request.Reference != saved.ID {
		img.Origin += " (" + i.request.Reference + ")"
	}
	return img, nil
}

// spool keeps a stream as a file, because images are not read in one go, and opens
// it.
func (i *importing) spool(ctx context.Context, stream io.Reader, o source.Options) (*source.Image, error) {
	name := path.Join(i.work, "scratch", "archive")
	f, err := i.store.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, io.LimitReader(&metered{ctx, stream, &i.meter}, o.Bytes+1))
	if err == nil && n > o.Bytes {
		err = sandbox.Errorf(sandbox.KindInvalid, "import image", "archive", "larger than %d bytes", o.Bytes)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return source.Open(path.Join(i.store.dir, name), o)
}

// build makes the tree and finds out what it is.
func (i *importing) build(ctx context.Context, img *source.Image, limits unpack.Limits) (*Record, error) {
	dir := path.Join(i.work, "image")
	if err := i.store.root.Mkdir(dir, privateMode); err != nil {
		return nil, err
	}
	if err := i.store.root.Mkdir(path.Join(dir, treeName), privateMode); err != nil {
		return nil, err
	}
	root, err := i.store.root.OpenRoot(path.Join(dir, treeName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	tree := unpack.New(root, limits)
	i.meter.phase(PhaseUnpack, img.Bytes())
	for _, l := range img.Layers {
		if err := i.unpack(ctx, tree, l, img.Layered); err != nil {
			return nil, err
		}
	}
	i.meter.phase(PhaseCheck, 0)
	r := &Record{Origin: cmp.Or(i.request.Origin, img.Origin), Arch: i.store.cfg.Arch, Created: now()}
	if err := dress(tree); err != nil {
		return nil, err
	}
	if err := findPython(tree, r, i.store.cfg.Preload); err != nil {
		return nil, err
	}
	if err := tree.Seal(); err != nil {
		return nil, err
	}
	content, err := unpack.Measure(ctx, root)
	if err != nil {
		return nil, err
	}
	r.Digest, r.Bytes, r.Entries = content.Digest, content.Bytes, content.Entries
	return r, i.store.root.Chmod(dir, passMode)
}

func (i *importing) unpack(ctx context.Context, tree *unpack.Tree, l source.Layer, whiteouts bool) error {
	r, err := l.Open(ctx, i.meter.add)
	if err != nil {
		return err
	}
	return errors.Join(tree.Layer(ctx, r, whiteouts), r.Close())
}

// adopt puts an image that is on the disk into its place, and names it.
func (s *Store) adopt(dir string, r *Record, name string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.images[r.Digest]; known != nil {
		r = known
	} else {
		if err := s.root.Rename(dir, treePath(r.Digest)); err != nil {
			return Record{}, err
		}
		if err := syncDir(s.root, treesDir); err != nil {
			return Record{}, err
		}
		s.images[r.Digest] = r
	}
	s.index.Used[r.Digest] = now()
	if name != "" {
		s.index.Names[name] = r.Digest
	}
	if err := s.index.write(s.root); err != nil {
		return Record{}, err
	}
	return s.describe(r), nil
}
