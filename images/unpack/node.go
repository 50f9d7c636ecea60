package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Kind is what an entry of a tree is; there are no others.
type Kind byte

// The kinds of entries.
const (
	Dir Kind = iota
	File
	Symlink
)

// node is one entry as it was written.
type node struct {
	kind     Kind
	layer    int         // that wrote it last
	pruned   int         // layer that has removed what those below had in it
	mode     fs.FileMode // of a directory or file
	target   string
	bytes    int64
	children map[string]*node // of a directory
}

func newDir(layer int) *node {
	return &node{kind: Dir, layer: layer, mode: dirMode, children: map[string]*node{}}
}

// Entry is what a tree has at a path.
type Entry struct {
	Kind  Kind
	Bytes int64 // of a file
	// Readable and Executable tell what programs may do, who own nothing: search, in
	// the case of a directory.
	Readable, Executable bool
}

// maxLinks is how many links a path may lead through, as in the kernel
// (path_resolution(7)).
const maxLinks = 40

var errLoop = errors.New("too many symbolic links")

// Resolve follows the links of name as a process would whose root directory the
// tree is, and returns where that leads to. It reads the account, not the disk.
func (t *Tree) Resolve(name string) (string, Entry, error) {
	real, n, reachable, err := t.resolve(name)
	if err != nil {
		return "", Entry{}, err
	}
	return real, Entry{n.kind, n.bytes, reachable && n.mode&0o004 != 0, reachable && n.mode&0o001 != 0}, nil
}

// resolve also tells whether programs may search all directories on the way.
func (t *Tree) resolve(name string) (real string, n *node, reachable bool, err error) {
	var at []string // names from the root to the current directory
	chain := []*node{t.top}
	rest := split(name)
	reachable = true
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		here := chain[len(chain)-1]
		reachable = reachable && here.mode&0o001 != 0
		if part == ".." {
			at, chain = at[:max(len(at)-1, 0)], chain[:max(len(chain)-1, 1)]
			continue
		}
		next, ok := here.children[part] // of a file: nothing
		if !ok {
			return "", nil, false, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		if next.kind != Symlink {
			at, chain = append(at, part), append(chain, next)
			continue
		}
		if links++; links > maxLinks {
			return "", nil, false, fmt.Errorf("%s: %w", name, errLoop)
		}
		if path.IsAbs(next.target) {
			at, chain = nil, chain[:1]
		}
		rest = append(split(next.target), rest...)
	}
	return strings.Join(at, "/"), chain[len(chain)-1], reachable, nil
}

// split cuts a path into names, leaving out empty ones and ".".
func split(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// Names lists the entries of a directory in order, following links to it.
func (t *Tree) Names(dir string) []string {
	_, n, _, err := t.resolve(dir)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.children))
}
