package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Layer is one tar of an image.
type Layer struct {
	Bytes int64 // as stored
	name  string
	diff  string // hexadecimal SHA-256 of the tar; "" is not known
	open  func(context.Context) (io.ReadCloser, error)
}

// Open starts to read the layer's tar. At its end it fails if the content is not
// what the image names, so read to the end before trusting any of it. progress
// is told how many stored bytes were read since; it may be nil.
func (l Layer) Open(ctx context.Context, progress func(n int)) (io.ReadCloser, error) {
	stored, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	content, err := decompress(&counted{ctx: ctx, r: stored, progress: progress})
	if err != nil {
		return nil, errors.Join(invalid(l.name, "%w", err), stored.Close())
	}
	return &verified{r: content, layer: l, sum: sha256.New(), close: func() error {
		return errors.Join(content.Close(), stored.Close())
	}}, nil
}

// counted tells of progress and ends with the context.
type counted struct {
	ctx      context.Context
	r        io.Reader
	progress func(int)
}

func (c *counted) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, &sandbox.Error{Kind: sandbox.KindCanceled, Op: "read image", Err: context.Cause(c.ctx)}
	}
	n, err := c.r.Read(p)
	if c.progress != nil {
		c.progress(n)
	}
	return n, err
}

// failing gives failures of reading, as against those of writing, a kind.
type failing struct {
	kind sandbox.Kind
	name string
	r    io.Reader
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &sandbox.Error{Kind: f.kind, Op: "read image", Subject: f.name, Err: err}
	}
	return n, err
}

type verified struct {
	r     io.Reader
	layer Layer
	sum   hash.Hash
	close func() error
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	_, _ = v.sum.Write(p[:n]) // never fails (hash.Hash)
	if errors.Is(err, io.EOF) && v.layer.diff != "" && hex.EncodeToString(v.sum.Sum(nil)) != v.layer.diff {
		return n, invalid(v.layer.name, "content has another digest than the image names")
	}
	return n, err
}

func (v *verified) Close() error { return v.close() }

// maxWindow is what a decoder may hold; zstd's own default limit is 128 MiB.
const maxWindow = 128 << 20

// plain is content that is not compressed.
type plain struct{ io.Reader }

func (plain) Close() error { return nil }

// decompress looks at the content: media types are often wrong.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One at a time: it then starts no goroutines.
		d, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case bytes.Equal(magic, []byte{0xfd, '7', 'z', 'X'}), bytes.HasPrefix(magic, []byte("BZh")):
		return nil, errors.New("compressed by xz or bzip2; gzip, zstd or no compression is needed")
	}
	return plain{buffered}, nil
}

// plainFile is f where it is not compressed, else an unlinked file with its
// content: members of images are read in any order.
func plainFile(f *os.File, o Options) (_ *os.File, err error) {
	r, err := decompress(f)
	if err != nil {
		return nil, invalid(filepath.Base(f.Name()), "%w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, ok := r.(plain); ok {
		return f, nil
	}
	scratch, err := os.CreateTemp(o.Scratch, "plain-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(scratch.Name()), fill(scratch, r, o.Bytes)); err != nil {
		return nil, errors.Join(err, scratch.Close())
	}
	return scratch, nil
}

// fill copies at most so many bytes.
func fill(scratch *os.File, r io.Reader, most int64) error {
	n, err := io.Copy(scratch, io.LimitReader(failing{sandbox.KindInvalid, "archive", r}, most+1))
	if err == nil && n > most {
		err = invalid("", "the archive is larger than %d bytes", most)
	}
	return err
}

// layersOf pairs what is stored with the digests of the configuration.
func layersOf(config *v1.ConfigFile, names []string, o Options) ([]Layer, error) {
	diffs := config.RootFS.DiffIDs
	switch {
	case len(names) == 0:
		return nil, invalid("", "the image has no layers")
	case len(names) > maxLayers:
		return nil, invalid("", "more than %d layers", maxLayers)
	case len(names) != len(diffs):
		return nil, invalid("", "%d layers, but %d digests", len(names), len(diffs))
	case config.OS != "" && config.OS != "linux", config.Architecture != "" && config.Architecture != o.Arch:
		return nil, invalid("", "the image is for %s; linux/%s is needed", printable(config.OS+"/"+config.Architecture), o.Arch)
	}
	layers := make([]Layer, len(names))
	for i, name := range names {
		layers[i] = Layer{name: name, diff: diffs[i].Hex}
	}
	return layers, nil
}

// stored gives layers their content.
func stored(b blobs, layers []Layer) ([]Layer, error) {
	for i := range layers {
		l := &layers[i]
		r, size, err := b.open(l.name)
		if err != nil {
			return nil, err
		}
		if err := r.Close(); err != nil {
			return nil, fmt.Errorf("read image: %w", err)
		}
		l.Bytes = size
		l.open = func(context.Context) (io.ReadCloser, error) {
			r, _, err := b.open(l.name)
			return r, err
		}
	}
	return layers, nil
}
