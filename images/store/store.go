package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/sandbox"
)

// HostName is the name of the machine's own image, which is not stored.
const HostName = sandbox.HostImage

// Config is what a store needs. Everything is required unless it says otherwise.
type Config struct {
	Dir  string // its own; nobody else may write there
	Arch string // GOARCH that images must be for
	Log  *slog.Logger
	// Host is the machine's own image; nil where there is none.
	Host *images.Image
	// Limits bound one import.
	Limits unpack.Limits
	// Bytes bounds all images together; 0 leaves it to the disk.
	Bytes int64
	// Preload are modules to look for in images; none is fine.
	Preload []string
	// Registry says how to pull; the zero value will do.
	Registry source.Registry
	// Engine says where the Docker Engine is; the zero value will do.
	Engine source.Engine
}

func (c Config) validate() error {
	switch {
	case !filepath.IsAbs(c.Dir):
		return fmt.Errorf("image store: %q is not an absolute path", c.Dir)
	case c.Arch == "", c.Log == nil:
		return errors.New("image store: architecture or logger is missing")
	case min(c.Limits.Bytes, c.Limits.Entries, int64(c.Limits.PathBytes), int64(c.Limits.Depth)) <= 0:
		return errors.New("image store: a limit is missing")
	}
	return nil
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	cfg     Config
	dir     string // without symbolic links: mounts are made of it
	root    *os.Root
	imports chan struct{} // held by the import that is under way

	mu     sync.Mutex
	images map[string]*Record // by digest; Names, LastUsed and InUse are left empty
	index  index
	uses   map[string]int           // by digest
	shapes map[string]*images.Image // by digest, of those that were used; without their names
}

// The directories of a store. A sandbox must be able to reach its tree, so those
// above it may be passed through, though not listed.
const (
	treesDir = "trees"
	tmpDir   = "tmp"
	treeName = "tree"

	passMode    fs.FileMode = 0o711
	privateMode fs.FileMode = 0o700
)

// Open opens a store, makes it where there is none, and removes what a killed
// daemon has left.
func Open(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, imports: make(chan struct{}, 1), images: map[string]*Record{}, uses: map[string]int{}, shapes: map[string]*images.Image{}}
	if err := s.open(); err != nil {
		if s.root != nil {
			err = errors.Join(err, s.root.Close())
		}
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if err := os.MkdirAll(s.cfg.Dir, passMode); err != nil { //nolint:gosec // see passMode
		return err
	}
	if s.dir, err = filepath.EvalSymlinks(s.cfg.Dir); err != nil {
		return err
	}
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return err
	}
	if err := s.root.RemoveAll(tmpDir); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		mode fs.FileMode
	}{{".", passMode}, {treesDir, passMode}, {tmpDir, privateMode}} {
		if err := s.root.MkdirAll(d.name, d.mode); err != nil {
			return err
		}
		if err := s.root.Chmod(d.name, d.mode); err != nil { // whatever the umask
			return err
		}
	}
	if err := s.readRecords(); err != nil {
		return err
	}
	s.index, err = readIndex(s.root, s.images)
	return err
}

// readRecords finds the images. A directory without a record of its own digest
// cannot come from us: it is removed, as its image could be neither trusted nor
// imported again.
func (s *Store) readRecords() error {
	entries, err := fs.ReadDir(s.root.FS(), treesDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		r, err := readRecord(s.root, e.Name())
		if err != nil {
			s.cfg.Log.Warn("remove broken image", slog.String("image", e.Name()), slog.Any("err", err))
			doomed, err := s.discard(e.Name())
			if err != nil {
				return err
			}
			if err := s.root.RemoveAll(doomed); err != nil {
				return err
			}
			continue
		}
		s.images[r.Digest] = r
	}
	return nil
}

// Close closes the store. Images in use stay usable.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.index.write(s.root), s.root.Close())
}

// now is a time as it is stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
