package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Store is where the images are. It is safe for concurrent use.
type Store interface {
	Reader
	Writer
}

// Reader tells of images and holds them. A reference is a name, a digest or the
// beginning of one; what is not there is an Error of kind not found.
type Reader interface {
	List() []sandbox.Image
	Inspect(reference string) (sandbox.Image, error)
	// Acquire holds an image: until release is called, it stays.
	Acquire(reference string) (image sandbox.Image, release func(), err error)
}

// Writer changes what is stored.
type Writer interface {
	// MostArchive is the largest archive that Import reads, in bytes.
	MostArchive() int64
	Import(ctx context.Context, o Order, progress func(sandbox.ImageProgress)) (sandbox.Image, error)
	Remove(reference string) error
	// Collect removes garbage and tells what it removed, also beside an error.
	Collect(ctx context.Context, g Garbage) ([]sandbox.Image, error)
}

// Order is what to bring in: an archive where there is one, else a request.
type Order struct {
	sandbox.ImageRequest
	Archive Archive
	Form    string // of the archive: oci, docker, rootfs, or empty to be told by its content
	Tag     string // of one among several images in the archive
}

// Archive is a caller's archive as it arrives. Interrupt has a Read that waits
// return, and all later ones.
type Archive interface {
	io.Reader
	Interrupt()
}

// Garbage says what may go. Images that are held never go.
type Garbage struct {
	UnusedFor time.Duration // those not used for so long; 0 is none
	Bytes     int64         // then those not used for longest, until all take no more; 0 is no bound
	Keep      []string      // names and digests that stay
}

// Config says what is allowed.
type Config struct {
	// Default is the image of runs that name none. Empty leaves it to their engine.
	Default string
	// Allowed are patterns (path.Match) of names and digests that runs may name
	// beside the default. Nil allows every image that there is.
	Allowed []string
	// Managers may bring in and remove images beside root.
	ManagerUIDs []uint32
	ManagerGIDs []uint32
	// ImportTime bounds one import.
	ImportTime time.Duration
	// Unused is after which time an image that nobody uses is garbage; 0 is never.
	Unused time.Duration
	// Bytes is what all images may take; 0 leaves it to the disk.
	Bytes int64
}

func (c *Config) validate() error {
	var errs []error
	if c.ImportTime <= 0 {
		errs = append(errs, errors.New("the time of an import must be positive"))
	}
	for _, p := range c.Allowed {
		if _, err := path.Match(p, ""); err != nil {
			errs = append(errs, fmt.Errorf("pattern %q: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// Catalog is the images of one daemon. Make it with New; stop it with Stop.
type Catalog struct {
	cfg    Config
	store  Store
	logger *slog.Logger

	mu       sync.Mutex
	stopped  bool
	busy     bool // an import is under way
	cancel   context.CancelCauseFunc
	ctx      context.Context // ends with Stop
	keepings sync.WaitGroup  // imports and collections under way
}

// New makes a catalog of a store; without one there is the engines' own images
// alone.
func New(cfg Config, store Store, logger *slog.Logger) (*Catalog, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure images: %w", err)
	}
	if logger == nil {
		return nil, errors.New("configure images: no logger")
	}
	if store == nil {
		store = none{}
	}
	c := &Catalog{cfg: cfg, store: store, logger: logger}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// Entry is an image as clients see it.
type Entry struct {
	sandbox.Image
	Default bool `json:"default" doc:"Runs that name no image get it"`
	Allowed bool `json:"allowed" doc:"Runs may name it"`
}

func (c *Catalog) entry(image sandbox.Image) Entry {
	return Entry{Image: image, Default: c.isDefault(&image), Allowed: c.allows(&image)}
}

// List tells of all images, the machine's own first.
func (c *Catalog) List() []Entry {
	list := []Entry{}
	for _, image := range c.store.List() {
		list = append(list, c.entry(image))
	}
	return list
}

// Inspect tells of one image.
func (c *Catalog) Inspect(reference string) (Entry, error) {
	image, err := c.store.Inspect(reference)
	if err != nil {
		return Entry{}, err
	}
	return c.entry(image), nil
}

// Hold gives the image of a run that names reference, and keeps it until release
// is called. A run that names none where no default is configured gets the zero
// image: its engine's own.
func (c *Catalog) Hold(reference string) (_ sandbox.Image, release func(), err error) {
	wanted := reference
	if wanted == "" {
		wanted = c.cfg.Default
	}
	if wanted == "" {
		return sandbox.Image{}, func() {}, nil
	}
	image, release, err := c.store.Acquire(wanted)
	switch {
	case err != nil:
		return image, nil, c.missing(reference, err)
	case reference != "" && !c.allows(&image):
		release()
		return image, nil, &sandbox.Error{
			Kind: sandbox.KindDenied, Op: "admit", Subject: "image", Err: fmt.Errorf("the configuration does not allow image %.80q", reference),
			Mend: "add it to allowed in the section images of the configuration",
		}
	}
	return image, release, nil
}

// missing says what a run may name instead.
func (c *Catalog) missing(reference string, err error) error {
	kind := sandbox.KindOf(err)
	if kind != sandbox.KindNotFound && kind != sandbox.KindInvalid {
		return err
	}
	if reference == "" {
		return &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "admit", Subject: "image",
			Err:  fmt.Errorf("the image %.80q, which the configuration gives to runs that name none, is not stored", c.cfg.Default),
			Mend: "bring it in by sandboxctl images, or change default in the section images of the configuration",
		}
	}
	if kind == sandbox.KindInvalid {
		return &sandbox.Error{Kind: kind, Op: "admit", Subject: "image", Err: fmt.Errorf("%.80q: several images begin so", reference)}
	}
	return sandbox.Errorf(sandbox.KindInvalid, "admit", "image", "no image is called %.80q; known: %s", reference, c.known())
}

// maxKnown is how many images a refusal names.
const maxKnown = 20

// known names what runs may name.
func (c *Catalog) known() string {
	var names []string
	for _, image := range c.store.List() {
		if !c.allows(&image) {
			continue
		}
		if len(names) == maxKnown {
			names = append(names, "…")
			break
		}
		names = append(names, image.Name())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
