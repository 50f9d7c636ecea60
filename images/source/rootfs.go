package source

import (
	"context"
	"io"
	"os"
)

// openRootFS takes a whole archive for the one layer.
func openRootFS(f *os.File) (*Image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	layer := Layer{Bytes: info.Size(), name: "archive", open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(f, 0, info.Size())), nil
	}}
	return &Image{Origin: "root file system archive", Layers: []Layer{layer}}, nil
}
