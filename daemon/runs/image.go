package runs

import (
	"fmt"

	"github.com/sandboxd/sandboxd/sandbox"
)

// held is a run's image, which stays until the run lets go of it.
type held struct {
	image   sandbox.Image // the zero one is the engine's own
	release func()
}

// isOwn tells whether e runs it without being told of it.
func (h *held) isOwn(e *Engine) bool {
	return h.image.Digest == "" || (h.image.IsHost() && !e.Support.Images)
}

// reference is what e's plan says of the image.
func (h *held) reference(e *Engine) string {
	if h.isOwn(e) {
		return ""
	}
	return h.image.Digest
}

// names tells which image and which interpreter a result speaks of, in the words in
// which engines tell theirs.
func (h *held) names(e *Engine) (image, interpreter string) {
	if h.isOwn(e) {
		return e.Support.Image, e.Support.Interpreter
	}
	image = h.image.Name()
	if image != h.image.Digest {
		image += " " + h.image.Digest
	}
	return image, "Python " + h.image.PythonVersion + " at " + h.image.Interpreter
}

// suits refuses an engine that cannot run the image.
func (h *held) suits(e *Engine) error {
	if h.isOwn(e) || e.Support.Images {
		return nil
	}
	return &sandbox.Error{
		Kind: sandbox.KindInvalid, Op: "admit", Subject: "image",
		Err:  fmt.Errorf("engine %s runs no image but the machine's own; %.80q is a stored one", e.Name(), h.image.Name()),
		Mend: "name image host, or another engine",
	}
}

// ownImage is where there are no images but the engines' own.
type ownImage struct{}

func (ownImage) Hold(reference string) (sandbox.Image, func(), error) {
	if reference == "" || reference == sandbox.HostImage {
		return sandbox.Image{}, func() {}, nil
	}
	return sandbox.Image{}, nil, sandbox.Errorf(sandbox.KindInvalid, "admit", "image", "no image is called %.80q; known: %s", reference, sandbox.HostImage)
}
