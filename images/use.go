package images

import "sync"

// Source is where engines find the images that runs name. Implementations are
// safe for concurrent use.
type Source interface {
	// Acquire takes an image into use by name or digest. One that is not known is
	// an Error of kind not found.
	Acquire(reference string) (*Use, error)
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
