package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// refuse names the member that is at fault.
func refuse(name, format string, args ...any) error {
	return sandbox.Errorf(sandbox.KindInvalid, "unpack image", fmt.Sprintf("member %q", shorten(name)), format, args...)
}

func shorten(name string) string {
	const enough = 200
	if len(name) > enough {
		return name[:enough] + "…"
	}
	return name
}

// clean checks a member's name and returns it relative to the root; "" is the
// root itself.
func (l Limits) clean(name string) (string, error) {
	switch {
	case len(name) > l.PathBytes:
		return "", fmt.Errorf("name is longer than %d bytes", l.PathBytes)
	case path.IsAbs(name):
		return "", errors.New("name is absolute")
	case strings.ContainsRune(name, 0):
		return "", errors.New("name has a zero byte")
	}
	parts := split(name)
	switch {
	case slices.Contains(parts, ".."):
		return "", errors.New("name leads out by \"..\"")
	case len(parts) > l.Depth:
		return "", fmt.Errorf("more than %d directories deep", l.Depth)
	case slices.ContainsFunc(parts, func(s string) bool { return len(s) > nameBytes }):
		return "", fmt.Errorf("a part of the name is longer than %d bytes", nameBytes)
	}
	return strings.Join(parts, "/"), nil
}

// checkTarget refuses a link that leads out of the tree. An absolute one names a
// path of the image, whose root directory the tree will be.
func (l Limits) checkTarget(name, target string) error {
	switch {
	case target == "":
		return errors.New("link leads nowhere")
	case len(target) > l.PathBytes:
		return fmt.Errorf("link is longer than %d bytes", l.PathBytes)
	case strings.ContainsRune(target, 0):
		return errors.New("link has a zero byte")
	case path.IsAbs(target):
		return nil
	}
	depth := strings.Count(name, "/")
	for _, part := range split(target) {
		if part != ".." {
			depth++
		} else if depth--; depth < 0 {
			return fmt.Errorf("link to %q leads out", shorten(target))
		}
	}
	return nil
}

// ownDevices are the nodes that builders of root file systems put into /dev.
// They are left out: a sandbox has a /dev of its own.
var ownDevices = map[string][2]int64{
	"dev/null": {1, 3}, "dev/zero": {1, 5}, "dev/full": {1, 7}, "dev/random": {1, 8}, "dev/urandom": {1, 9},
	"dev/tty": {5, 0}, "dev/console": {5, 1}, "dev/ptmx": {5, 2},
}

func isOwnDevice(name string, h *tar.Header) bool {
	numbers, ok := ownDevices[name]
	return ok && h.Typeflag == tar.TypeChar && numbers == [2]int64{h.Devmajor, h.Devminor}
}

// whatItIs says why a member of another type is refused.
func whatItIs(typeflag byte) string {
	switch typeflag {
	case tar.TypeChar, tar.TypeBlock:
		return "it is a device"
	case tar.TypeFifo:
		return "it is a fifo"
	}
	return fmt.Sprintf("it is of the unknown type %q", typeflag)
}
