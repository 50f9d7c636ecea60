package store

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Record is what is known of an image, as it is stored too. Names, LastUsed and
// InUse change and are kept elsewhere.
type Record = sandbox.Image

const (
	recordFile   = "record.json"
	digestPrefix = "sha256:"
	// prefixDigits is how much of a digest stands for all of it.
	prefixDigits = 12
)

func treePath(digest string) string {
	return path.Join(treesDir, strings.TrimPrefix(digest, digestPrefix))
}

func readRecord(root *os.Root, dir string) (*Record, error) {
	if raw, err := hex.DecodeString(dir); err != nil || len(raw) != 32 {
		return nil, errors.New("not the name of an image")
	}
	var r Record
	if err := readJSON(root, path.Join(treesDir, dir, recordFile), &r); err != nil {
		return nil, err
	}
	if r.Digest != digestPrefix+dir {
		return nil, fmt.Errorf("record of %q", r.Digest)
	}
	return &r, nil
}

// validName: lower case, as registries name images, so that no name can be taken
// for another on any file system or in any message.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._/:-]{0,127}$`)

func checkName(name string) error {
	if !validName.MatchString(name) || strings.HasPrefix(name, digestPrefix) || name == HostName {
		return sandbox.Errorf(sandbox.KindInvalid, "name image", fmt.Sprintf("%q", name),
			"a name is lower-case letters, digits and ._/:- , neither %s nor a digest", HostName)
	}
	return nil
}

// CheckName tells what is wrong with a name for an image; none is fine.
func CheckName(name string) error {
	if name == "" {
		return nil
	}
	return checkName(name)
}

// List tells of all images, the machine's own first, then by digest.
func (s *Store) List() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, digest := range slices.Sorted(maps.Keys(s.images)) {
		out = append(out, s.describe(s.images[digest]))
	}
	if host := s.host(); host != nil {
		out = slices.Insert(out, 0, *host)
	}
	return out
}

// Inspect tells of one image, by name, digest or the beginning of its digest.
func (s *Store) Inspect(reference string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if host := s.host(); host != nil && (reference == HostName || reference == host.Digest) {
		return *host, nil
	}
	r, err := s.find(reference)
	if err != nil {
		return Record{}, err
	}
	return s.describe(r), nil
}

// describe fills in what changes.
func (s *Store) describe(r *Record) Record {
	out := *r
	out.InUse, out.LastUsed = s.uses[r.Digest], r.Created
	if used, ok := s.index.Used[r.Digest]; ok {
		out.LastUsed = used
	}
	for _, name := range slices.Sorted(maps.Keys(s.index.Names)) {
		if s.index.Names[name] == r.Digest {
			out.Names = append(out.Names, name)
		}
	}
	return out
}

// host describes the machine's own image; nil where there is none.
func (s *Store) host() *Record {
	img := s.cfg.Host
	if img == nil {
		return nil
	}
	return &Record{
		Digest: img.Digest, Names: []string{HostName}, Origin: "this machine", Arch: s.cfg.Arch, InUse: s.uses[img.Digest],
		PythonVersion: img.PythonVersion, Interpreter: img.Interpreter, Stdlib: img.Stdlib, SitePackages: img.SitePackages,
	}
}

// find looks an image up. An exact name goes before a digest's beginning.
func (s *Store) find(reference string) (*Record, error) {
	if r := s.images[cmp.Or(s.index.Names[reference], reference)]; r != nil {
		return r, nil
	}
	digits := strings.TrimPrefix(reference, digestPrefix)
	var found *Record
	for digest, r := range s.images {
		if len(digits) < prefixDigits || !strings.HasPrefix(digest, digestPrefix+digits) {
			continue
		}
		if found != nil {
			return nil, sandbox.Errorf(sandbox.KindInvalid, "find image", reference, "several images begin so")
		}
		found = r
	}
	if found == nil {
		return nil, sandbox.Errorf(sandbox.KindNotFound, "find image", reference, "no such image")
	}
	return found, nil
}
