package images

import (
	"sync"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Source is where engines find the images that runs name. Implementations are
// safe for concurrent use.
type Source interface {
	// Acquire takes an image into use by name or digest. One that is not known is
	// an Error of kind not found.
	Acquire(reference string) (*Use, error)
}

// Choose takes the image into use that a reference names: own for none, and for
// its own name or digest, else one of others, which may be nil.
func Choose(own *Image, others Source, reference string) (*Use, error) {
	if own != nil && (reference == "" || reference == own.Name || reference == own.Digest) {
		return NewUse(own, func() {}), nil
	}
	if others == nil {
		return nil, sandbox.Errorf(sandbox.KindNotFound, "use image", "image", "no image is called %.80q", reference)
	}
	use, err := others.Acquire(reference)
	if err == nil && own != nil && use.Image.Digest == own.Digest {
		use.Release()
		return NewUse(own, func() {}), nil
	}
	return use, err
}

// Use holds an image: until it is released, the image stays.
type Use struct {
	Image   *Image
	release func()
}

// NewUse makes a use that calls release once, with the first Release.
func NewUse(image *Image, release func()) *Use {
	return &Use{Image: image, release: sync.OnceFunc(release)}
}

// Release lets go of the image. The sandboxes that were made of it must be gone.
// It may be called again.
func (u *Use) Release() { u.release() }
