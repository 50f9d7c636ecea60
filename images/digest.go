package images

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
)

// fingerprint is what a digest is computed from. File contents are not hashed: a
// host tree has gigabytes, and packages replace files rather than edit them.
type fingerprint struct {
	Version, Interpreter, BuildID string
	Binds                         []stamp
	Symlinks                      []Symlink
	Files                         []File
}

// stamp identifies a bound file, or a directory of packages, by its last change.
// The standard library's directory changes when byte code is written, which is
// no other content, so it counts by name.
type stamp struct {
	Bind
	Bytes, ModifiedNanos int64
}

func digest(img *Image) (string, error) {
	f := fingerprint{
		Version: img.PythonVersion, Interpreter: img.Interpreter, BuildID: buildID(img.Interpreter),
		Symlinks: img.Symlinks, Files: img.Files,
	}
	for _, bind := range img.Binds {
		s := stamp{Bind: bind}
		if !bind.Dir || slices.Contains(img.SitePackages, bind.Source) {
			info, err := os.Stat(bind.Source)
			if err != nil {
				return "", err
			}
			s.Bytes, s.ModifiedNanos = info.Size(), info.ModTime().UnixNano()
		}
		f.Binds = append(f.Binds, s)
	}
	data, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// buildID is the linker's hash of a program, "" where it has none.
func buildID(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	note := file.Section(".note.gnu.build-id")
	if note == nil || note.Size > maxNameBytes {
		return ""
	}
	data, err := note.Data()
	if err != nil {
		return ""
	}
	return hex.EncodeToString(data)
}
