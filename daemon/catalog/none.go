package catalog

import (
	"context"
	"errors"
	"math"

	"github.com/sandboxd/sandboxd/sandbox"
)

// none is the store of a daemon that has none. Runs can name the engines' own
// image.
type none struct{}

func noStore(kind sandbox.Kind, reference string) error {
	return &sandbox.Error{Kind: kind, Op: "find image", Subject: reference, Err: errors.New("this daemon has no image store")}
}

func (none) List() []sandbox.Image {
	return []sandbox.Image{{Names: []string{sandbox.HostImage}, Origin: "this machine"}}
}

func (none) Inspect(reference string) (sandbox.Image, error) {
	return sandbox.Image{}, noStore(sandbox.KindNotFound, reference)
}

func (none) Acquire(reference string) (sandbox.Image, func(), error) {
	if reference == sandbox.HostImage {
		return sandbox.Image{Names: []string{sandbox.HostImage}}, func() {}, nil
	}
	return sandbox.Image{}, nil, noStore(sandbox.KindNotFound, reference)
}

func (none) MostArchive() int64 { return math.MaxInt64 }

func (none) Import(context.Context, Order, func(sandbox.ImageProgress)) (sandbox.Image, error) {
	return sandbox.Image{}, noStore(sandbox.KindUnavailable, "images")
}

func (none) Remove(reference string) error { return noStore(sandbox.KindNotFound, reference) }

func (none) Collect(context.Context, Garbage) ([]sandbox.Image, error) { return nil, nil }
