package daemontest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Images is a scripted image store: an archive's text, or a reference's name, is the
// content, and decides what becomes of it.
//
//	hostile…   is refused, with the name of a member, in the middle of unpacking
//	hang…      is unpacked until the import is canceled
//	broken…    is our failure
//	missing…   is not found, before anything is read (references only)
type Images struct {
	mu     sync.Mutex
	images []*sandbox.Image
	uses   map[string]int
	held   int           // in all
	Begun  chan struct{} // an import has
	Ended  chan error    // an import has, so
}

// HostDigest is the digest of the machine's own image of Images.
const HostDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// NewImages makes a store with the machine's own image, and one of each name.
func NewImages(names ...string) *Images {
	s := &Images{uses: map[string]int{}, Begun: make(chan struct{}, 16), Ended: make(chan error, 16)}
	s.images = append(s.images, &sandbox.Image{
		Digest: HostDigest, Names: []string{sandbox.HostImage}, Origin: "this machine", Arch: "amd64",
		PythonVersion: "3.11.2", Interpreter: "/usr/bin/python3.11", Stdlib: "/usr/lib/python3.11",
	})
	for _, name := range names {
		s.put(name, name)
	}
	return s
}

// DigestOf is the digest of an image with the content.
func DigestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (s *Images) put(name, content string) sandbox.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := DigestOf(content)
	for _, i := range s.images {
		i.Names = slices.DeleteFunc(i.Names, func(n string) bool { return n == name })
	}
	at := slices.IndexFunc(s.images, func(i *sandbox.Image) bool { return i.Digest == digest })
	if at < 0 {
		at = len(s.images)
		s.images = append(s.images, &sandbox.Image{
			Digest: digest, Origin: "a test", Arch: "amd64", Bytes: 5 << 20, Entries: 3, Created: time.Unix(1_700_000_000, 0).UTC(),
			LastUsed:      time.Unix(1_700_000_000, 0).UTC(),
			PythonVersion: "3.12.1", Interpreter: "/usr/local/bin/python3.12", Stdlib: "/usr/local/lib/python3.12",
		})
	}
	if name != "" {
		s.images[at].Names = append(s.images[at].Names, name)
	}
	return s.copy(s.images[at])
}

// copy is an image as of now. The caller holds the lock.
func (s *Images) copy(i *sandbox.Image) sandbox.Image {
	out := *i
	out.Names, out.InUse = slices.Clone(i.Names), s.uses[i.Digest]
	return out
}

// find looks an image up. The caller holds the lock.
func (s *Images) find(reference string) (*sandbox.Image, error) {
	for _, i := range s.images {
		if i.Digest == reference || slices.Contains(i.Names, reference) ||
			(len(reference) >= 12 && strings.HasPrefix(strings.TrimPrefix(i.Digest, "sha256:"), reference)) {
			return i, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.KindNotFound, "find image", reference, "no such image")
}

// List implements catalog.Reader.
func (s *Images) List() []sandbox.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sandbox.Image
	for _, i := range s.images {
		out = append(out, s.copy(i))
	}
	return out
}

// Inspect implements catalog.Reader.
func (s *Images) Inspect(reference string) (sandbox.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(reference)
	if err != nil {
		return sandbox.Image{}, err
	}
	return s.copy(i), nil
}

// Acquire implements catalog.Reader.
func (s *Images) Acquire(reference string) (sandbox.Image, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(reference)
	if err != nil {
		return sandbox.Image{}, nil, err
	}
	s.uses[i.Digest]++
	s.held++
	return s.copy(i), sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uses[i.Digest]--
	}), nil
}

// Uses tells how often images were held, and how many are now.
func (s *Images) Uses() (ever, now int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.uses {
		now += n
	}
	return s.held, now
}

// MostArchive implements catalog.Writer.
func (s *Images) MostArchive() int64 { return 1 << 20 }

// Import implements catalog.Writer.
func (s *Images) Import(ctx context.Context, o catalog.Order, progress func(sandbox.ImageProgress)) (_ sandbox.Image, err error) {
	s.Begun <- struct{}{}
	defer func() { s.Ended <- err }()
	progress(sandbox.ImageProgress{Phase: "fetch"})
	content := o.Reference
	if o.Archive != nil {
		raw, err := io.ReadAll(o.Archive)
		if err != nil {
			return sandbox.Image{}, fmt.Errorf("spool: %w", err)
		}
		content = string(raw)
	}
	if strings.HasPrefix(content, "missing") {
		return sandbox.Image{}, sandbox.Errorf(sandbox.KindNotFound, "pull image", content, "the registry has no such image")
	}
	total := int64(len(content))
	progress(sandbox.ImageProgress{Phase: "unpack", TotalBytes: total})
	progress(sandbox.ImageProgress{Phase: "unpack", DoneBytes: total, TotalBytes: total})
	switch {
	case strings.HasPrefix(content, "hostile"):
		return sandbox.Image{}, sandbox.Errorf(sandbox.KindInvalid, "unpack image", "../etc/passwd", "its name leads out of the image")
	case strings.HasPrefix(content, "broken"):
		return sandbox.Image{}, errors.New("the disk at /secret/path is gone")
	case strings.HasPrefix(content, "hang"):
		<-ctx.Done()
		return sandbox.Image{}, &sandbox.Error{Kind: sandbox.KindCanceled, Op: "import image", Err: context.Cause(ctx)}
	}
	progress(sandbox.ImageProgress{Phase: "check"})
	return s.put(o.Name, content), nil
}

// Remove implements catalog.Writer.
func (s *Images) Remove(reference string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(reference)
	if err != nil {
		return err
	}
	if n := s.uses[i.Digest]; n > 0 {
		return sandbox.Errorf(sandbox.KindConflict, "remove image", reference, "it is in use (%d)", n)
	}
	s.images = slices.DeleteFunc(s.images, func(other *sandbox.Image) bool { return other == i })
	return nil
}

// Collect implements catalog.Writer: every image that is not kept nor in use goes,
// when any time is given.
func (s *Images) Collect(_ context.Context, g catalog.Garbage) (removed []sandbox.Image, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = slices.DeleteFunc(s.images, func(i *sandbox.Image) bool {
		kept := slices.Contains(g.Keep, i.Digest) || slices.ContainsFunc(i.Names, func(n string) bool { return slices.Contains(g.Keep, n) })
		if g.UnusedFor == 0 || i.IsHost() || kept || s.uses[i.Digest] > 0 {
			return false
		}
		removed = append(removed, s.copy(i))
		return true
	})
	return removed, nil
}
