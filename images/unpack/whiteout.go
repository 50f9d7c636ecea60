package unpack

import (
	"path"
	"strings"
)

// Names by which a layer takes away what layers below it have (OCI image
// specification, layer.md).
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// whiteout obeys a member that is a whiteout. It is about layers below only,
// wherever in its own layer it stands.
func (t *Tree) whiteout(name string) error {
	dir, mark := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	parent, err := t.parentOf(name)
	if err != nil || parent == nil {
		return err
	}
	if mark == whiteoutOpaque {
		return t.prune(dir, parent)
	}
	if strings.HasPrefix(mark, whiteoutMeta) {
		return nil // notes of AUFS to itself
	}
	hidden := strings.TrimPrefix(mark, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return refuse(name, "whiteout of nothing")
	}
	n, ok := parent.children[hidden]
	if !ok {
		return nil
	}
	if n.kind == Dir {
		if err := t.prune(path.Join(dir, hidden), n); err != nil {
			return err
		}
	}
	return t.removeOlder(path.Join(dir, hidden), parent, hidden)
}

// prune removes what layers below have written under dir. Once is enough for a
// layer: what it adds later is its own, and a mark for each of its files would
// otherwise cost the square of their number.
func (t *Tree) prune(dir string, n *node) error {
	if n.pruned == t.layer {
		return nil
	}
	n.pruned = t.layer
	for name, child := range n.children {
		full := path.Join(dir, name)
		if child.kind == Dir {
			if err := t.prune(full, child); err != nil {
				return err
			}
		}
		if err := t.removeOlder(full, n, name); err != nil {
			return err
		}
	}
	return nil
}

// removeOlder removes an entry of a layer below, unless it is a directory in
// which this layer has something.
func (t *Tree) removeOlder(full string, parent *node, name string) error {
	n := parent.children[name]
	if n.layer == t.layer || len(n.children) > 0 {
		return nil
	}
	return t.remove(full, parent, name)
}
