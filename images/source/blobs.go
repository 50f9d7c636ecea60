package source

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blobs are named files of an image: of a directory or of an archive.
type blobs interface {
	open(name string) (r io.ReadCloser, bytes int64, err error)
}

// document reads a small file whole.
func document(b blobs, name string) ([]byte, error) {
	r, size, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	if size > maxDocument {
		return nil, invalid(name, "larger than %d bytes", maxDocument)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxDocument))
	if err != nil {
		return nil, invalid(name, "%w", err)
	}
	return data, nil
}

// blobName is where a layout keeps what has a digest. v1.Hash has only sha256.
func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digested reads a document and compares it with its digest.
func digested(b blobs, h v1.Hash) ([]byte, error) {
	data, err := document(b, blobName(h))
	if err != nil {
		return nil, err
	}
	if digestOf(data) != h.String() {
		return nil, invalid(blobName(h), "content has another digest")
	}
	return data, nil
}

// dirBlobs are files below a directory. Links are refused rather than followed.
type dirBlobs struct{ root *os.Root }

func (d dirBlobs) open(name string) (io.ReadCloser, int64, error) {
	info, err := d.root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, invalid(name, "not in the image")
	}
	if err != nil {
		return nil, 0, invalid(name, "%w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, invalid(name, "it is no regular file")
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, 0, invalid(name, "%w", err)
	}
	return f, info.Size(), nil
}

// tarBlobs are members of an uncompressed archive, by where their content is.
type tarBlobs struct {
	file    *os.File
	members map[string]extent
}

type extent struct {
	at, bytes int64
	link      string // of a link: the member that it leads to
}

// indexTar finds the members of an archive without reading their content. An
// archive with more than images have is indexed in part: it is a root file
// system.
func indexTar(f *os.File) (*tarBlobs, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	b := &tarBlobs{file: f, members: map[string]extent{}}
	r := tar.NewReader(f) // which skips content by seeking, so f is where content begins
	for range maxMembers {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid(filepath.Base(f.Name()), "read archive: %w", err)
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		b.add(h, at)
	}
	return b, nil
}

// maxName is longer than any name that an archive of images has. Members with
// longer ones are passed over, so that the index stays small.
const maxName = 512

func (b *tarBlobs) add(h *tar.Header, at int64) {
	name := path.Clean(h.Name)
	if _, ok := b.members[name]; ok || isSparse(h) || len(name) > maxName || len(h.Linkname) > maxName {
		return
	}
	// A copy: the archive's text may be a part of a header of a mebibyte.
	name = strings.Clone(name)
	switch h.Typeflag {
	case tar.TypeReg:
		b.members[name] = extent{at: at, bytes: h.Size}
	case tar.TypeSymlink: // by which old archives share layers
		b.members[name] = extent{link: path.Join(path.Dir(name), strings.Clone(h.Linkname))}
	case tar.TypeLink:
		b.members[name] = extent{link: path.Clean(strings.Clone(h.Linkname))}
	}
}

// isSparse: the content of a sparse member is not what is stored.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (b *tarBlobs) open(name string) (io.ReadCloser, int64, error) {
	at := path.Clean(name)
	for range maxIndexes {
		e, ok := b.members[at]
		if !ok {
			return nil, 0, invalid(name, "not in the image")
		}
		if e.link == "" {
			return io.NopCloser(io.NewSectionReader(b.file, e.at, e.bytes)), e.bytes, nil
		}
		at = e.link
	}
	return nil, 0, invalid(name, "too many links")
}

// kind tells what an archive is. What `docker save` writes is a layout as well;
// its own list has the names of the images.
func (b *tarBlobs) kind() Kind {
	if list, err := document(b, "manifest.json"); err == nil && bytes.HasPrefix(bytes.TrimSpace(list), []byte("[")) {
		return DockerArchive
	}
	_, layout := b.members["oci-layout"]
	_, index := b.members["index.json"]
	if layout && index {
		return OCILayout
	}
	return RootFS
}
