package source

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Kind is a form in which images come.
type Kind string

// The forms of images in files. Detect tells them apart by their content.
const (
	Detect        Kind = ""
	OCILayout     Kind = "oci"
	DockerArchive Kind = "docker"
	RootFS        Kind = "rootfs"
)

// DockerEngine is no form: an image is in an Engine, which hands archives out.
const DockerEngine Kind = "engine"

// Options say which image to take.
type Options struct {
	Kind Kind
	// Arch is the GOARCH to run on. Required.
	Arch string
	// Tag chooses among several images of one file; it may be empty where there is
	// but one.
	Tag string
	// ID is what a Docker Engine calls the image by its content; an archive that
	// holds another one is refused. It may be empty.
	ID string
	// Scratch is a directory for a compressed archive's content. Required.
	Scratch string
	// Bytes bounds that content. Required.
	Bytes int64
}

// Image is where to read an image's layers, the lowest first.
type Image struct {
	Origin string // for people: where it was found
	Layers []Layer
	// Layered says that names in layers may stand for removals.
	Layered bool
	close   func() error
}

// Close lets go of the files that the layers are read from.
func (i *Image) Close() error { return i.close() }

// Bytes is how much is to be read, as stored.
func (i *Image) Bytes() int64 {
	var n int64
	for _, l := range i.Layers {
		n += l.Bytes
	}
	return n
}

// Bounds on what is held in memory.
const (
	maxDocument = 4 << 20 // a manifest or configuration
	maxLayers   = 256     // overlay file systems take 128
	maxIndexes  = 4       // that lead to each other
	maxMembers  = 20_000  // of an archive of images
)

// invalid is an error of the image's.
func invalid(subject, format string, args ...any) error {
	return sandbox.Errorf(sandbox.KindInvalid, "read image", printable(subject), format, args...)
}

// printable makes a text of an image's or a registry's fit to be shown: what a
// terminal would obey is replaced, and the rest has an end.
func printable(text string) string {
	const enough = 300
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Open reads what a file or directory holds. The caller closes it.
func Open(path string, o Options) (*Image, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &sandbox.Error{Kind: sandbox.KindNotFound, Op: "read image", Err: err}
	case err != nil:
		return nil, fmt.Errorf("read image: %w", err)
	case info.IsDir():
		return openDir(path, o)
	case !info.Mode().IsRegular():
		return nil, invalid(path, "it is neither a file nor a directory")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	img, err := openArchive(f, o)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return img, nil
}

// openDir reads an OCI layout.
func openDir(path string, o Options) (*Image, error) {
	if o.Kind != Detect && o.Kind != OCILayout {
		return nil, invalid(path, "a directory is an OCI layout, not %q", o.Kind)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	img, err := openLayout(dirBlobs{root}, o)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	img.close = root.Close
	return img, nil
}

// openArchive takes f over unless it fails.
func openArchive(f *os.File, o Options) (*Image, error) {
	plain, err := plainFile(f, o)
	if err != nil {
		return nil, err
	}
	img, err := readArchive(plain, o)
	if err != nil {
		return nil, errors.Join(err, closeOther(plain, f))
	}
	img.close = func() error { return errors.Join(closeOther(plain, f), f.Close()) }
	return img, nil
}

func closeOther(plain, f *os.File) error {
	if plain == f {
		return nil
	}
	return plain.Close()
}

func readArchive(f *os.File, o Options) (*Image, error) {
	if o.Kind == RootFS {
		return openRootFS(f)
	}
	blobs, err := indexTar(f)
	if err != nil {
		return nil, err
	}
	kind := o.Kind
	if kind == Detect {
		kind = blobs.kind()
	}
	switch kind {
	case OCILayout:
		return openLayout(blobs, o)
	case DockerArchive:
		return openDocker(blobs, o)
	case RootFS, Detect:
		return openRootFS(f)
	case DockerEngine:
	}
	return nil, invalid(string(kind), "no such kind of image; there are %s, %s and %s", OCILayout, DockerArchive, RootFS)
}
