package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/filesystem"
	"github.com/sandboxd/sandboxd/sandbox"
)

// What the archive says nothing of gets one of these modes, whatever the umask.
const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
)

// modeOf is what stays of an archive's mode. Everything belongs to root, whoever
// owned it: an image's ids mean nothing on this machine, and one of them may be
// that of a live sandbox, whose program would then own files of its image. Programs
// are never the owner, so what others could read and execute is what they may, and
// what only its owner could read stays closed to them. Nobody may write, and
// set-id and sticky bits are gone.
func modeOf(mode int64) fs.FileMode {
	others := fs.FileMode(mode & 0o005)
	out := 0o600 | others<<3 | others
	if mode&0o111 != 0 {
		out |= 0o100
	}
	return out
}

// Tree writes an image into a directory and knows what it has written. It is not
// safe for concurrent use.
type Tree struct {
	root   *os.Root
	limits Limits
	top    *node
	layer  int

	bytes, entries, stream int64
	text                   int // of names and link targets in the account
	buffer                 []byte
}

// New writes into root, an empty directory that nobody else writes to.
func New(root *os.Root, limits Limits) *Tree {
	return &Tree{root: root, limits: limits, top: newDir(0), buffer: make([]byte, 256<<10)}
}

// Layer applies one uncompressed tar, on top of those before. whiteouts says
// that it is a layer of an image, in which some names stand for removal. r is
// read to its end, beyond the tar's own, so that its owner can check all of it.
func (t *Tree) Layer(ctx context.Context, r io.Reader, whiteouts bool) error {
	t.layer++
	bounded := &budget{r: r, left: t.limits.StreamBytes() - t.stream}
	archive := tar.NewReader(bounded)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return unreadable(err)
		}
		if err := t.member(h, archive, whiteouts); err != nil {
			return err
		}
	}
	_, err := io.CopyBuffer(io.Discard, bounded, t.buffer)
	t.stream += bounded.read
	return unreadable(err)
}

// unreadable gives an error of the stream the kind that its cause does not have.
func unreadable(err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok || err == nil {
		return err
	}
	return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "unpack image", Err: fmt.Errorf("read layer: %w", err)}
}

func (t *Tree) member(h *tar.Header, content io.Reader, whiteouts bool) error {
	if t.entries++; t.entries > t.limits.Entries {
		return refuse(h.Name, "more than %d members", t.limits.Entries)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := t.limits.clean(h.Name)
	if err != nil {
		return refuse(h.Name, "%w", err)
	}
	switch {
	case name == "" && h.Typeflag == tar.TypeDir, isOwnDevice(name, h):
		return nil
	case name == "":
		return refuse(h.Name, "it is no directory and takes the root's place")
	case whiteouts && strings.HasPrefix(path.Base(name), whiteoutPrefix):
		return t.whiteout(name)
	}
	if err := t.write(name, h, content); err != nil {
		if _, ok := errors.AsType[*sandbox.Error](err); ok {
			return err
		}
		return fmt.Errorf("unpack %q: %w", shorten(name), err)
	}
	return nil
}

func (t *Tree) write(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		n, err := t.directory(name)
		if err != nil {
			return err
		}
		n.mode = modeOf(h.Mode) | 0o100
		return t.root.Chmod(name, n.mode)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(name, modeOf(h.Mode), h.ModTime, h.Size, content)
	case tar.TypeSymlink:
		return t.symlink(name, h.Linkname)
	case tar.TypeLink:
		return t.link(name, h.Linkname)
	}
	return refuse(name, "%s", whatItIs(h.Typeflag))
}

// parentOf finds the directory that name is to be in; nil where there is none
// yet. It refuses to go through anything else, links above all.
func (t *Tree) parentOf(name string) (*node, error) {
	here := t.top
	for i, r := range name {
		if r != '/' {
			continue
		}
		here = here.children[path.Base(name[:i])]
		switch {
		case here == nil:
			return nil, nil
		case here.kind == Symlink:
			return nil, refuse(name, "%q above it is a symbolic link", shorten(name[:i]))
		case here.kind != Dir:
			return nil, refuse(name, "%q above it is a file", shorten(name[:i]))
		}
	}
	return here, nil
}

// place makes the directories above name and removes what is in its place.
func (t *Tree) place(name string) (parent *node, base string, err error) {
	if parent, err = t.parentOf(name); err != nil {
		return nil, "", err
	}
	if base, err = t.keep(name, path.Base(name)); err != nil {
		return nil, "", err
	}
	if parent == nil {
		parent, err = t.directory(path.Dir(name))
		return parent, base, err
	}
	if _, ok := parent.children[base]; ok {
		err = t.remove(name, parent, base)
	}
	return parent, base, err
}

// maxText bounds what the account holds of names and link targets. Half a million
// files of an installation have some 20 MiB.
const maxText = 128 << 20

// keep copies a text of the archive for the account. The archive's own may be a
// part of a header of a mebibyte, which would stay in memory as long.
func (t *Tree) keep(name, text string) (string, error) {
	if t.text += len(text); t.text > maxText {
		return "", refuse(name, "names and links are longer than %d bytes together", maxText)
	}
	return strings.Clone(text), nil
}

func (t *Tree) remove(full string, parent *node, base string) error {
	delete(parent.children, base)
	return t.root.RemoveAll(full)
}

// directory makes name and what is missing above it. One that is there stays.
func (t *Tree) directory(name string) (*node, error) {
	if name == "." {
		return t.top, nil
	}
	parent, err := t.parentOf(name)
	if err != nil {
		return nil, err
	}
	if parent != nil {
		if n, ok := parent.children[path.Base(name)]; ok && n.kind == Dir {
			n.layer = t.layer
			return n, nil
		}
	}
	parent, base, err := t.place(name)
	if err != nil {
		return nil, err
	}
	if err := t.root.Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	n := newDir(t.layer)
	parent.children[base] = n
	return n, t.root.Chmod(name, dirMode)
}

func (t *Tree) file(name string, mode fs.FileMode, modified time.Time, size int64, content io.Reader) error {
	if size > t.limits.Bytes-t.bytes {
		return refuse(name, "files are larger than %d bytes", t.limits.Bytes)
	}
	parent, base, err := t.place(name)
	if err != nil {
		return err
	}
	// O_EXCL follows no link (open(2)).
	f, err := t.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, fallible{content}, t.buffer)
	t.bytes += n
	parent.children[base] = &node{kind: File, layer: t.layer, mode: mode, bytes: n}
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	// Python takes byte code for stale whose source has another time than it
	// was compiled from (PEP 552).
	at := seconds(modified)
	return t.root.Chtimes(name, at, at)
}

// seconds is a time that every file system keeps.
func seconds(at time.Time) time.Time { return time.Unix(min(max(at.Unix(), 0), 1<<32-1), 0) }

func (t *Tree) symlink(name, target string) error {
	if err := t.limits.checkTarget(name, target); err != nil {
		return refuse(name, "%w", err)
	}
	target, err := t.keep(name, target)
	if err != nil {
		return err
	}
	parent, base, err := t.place(name)
	if err != nil {
		return err
	}
	parent.children[base] = &node{kind: Symlink, layer: t.layer, target: target}
	return t.root.Symlink(target, name)
}

// link repeats an entry of the tree under another name.
func (t *Tree) link(name, target string) error {
	from, err := t.limits.clean(target)
	if err != nil {
		return refuse(name, "hard link to %q: %w", shorten(target), err)
	}
	n, err := t.linked(name, from)
	if err != nil || from == name {
		return err
	}
	if n.kind == Symlink {
		return t.symlink(name, n.target)
	}
	if strings.HasPrefix(from, name+"/") {
		return refuse(name, "hard link to what it replaces")
	}
	parent, base, err := t.place(name)
	if err != nil {
		return err
	}
	parent.children[base] = &node{kind: File, layer: t.layer, mode: n.mode, bytes: n.bytes}
	if err := t.root.Link(from, name); filesystem.TooManyLinks(err) {
		return refuse(name, "hard link to %q, which has as many as it can have", shorten(from))
	} else if err != nil {
		return err
	}
	return nil
}

func (t *Tree) linked(name, from string) (*node, error) {
	parent, err := t.parentOf(from)
	if err != nil {
		return nil, refuse(name, "hard link: %w", err)
	}
	if parent == nil || parent.children[path.Base(from)] == nil {
		return nil, refuse(name, "hard link to %q, which is not there", shorten(from))
	}
	n := parent.children[path.Base(from)]
	if n.kind == Dir {
		return nil, refuse(name, "hard link to the directory %q", shorten(from))
	}
	return n, nil
}

// fallible marks what went wrong with the layer, as against the disk.
type fallible struct{ r io.Reader }

func (f fallible) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = unreadable(err)
	}
	return n, err
}

// budget reads no more than was granted.
type budget struct {
	r          io.Reader
	read, left int64
}

func (b *budget) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), 1<<20)])
	if b.read, b.left = b.read+int64(n), b.left-int64(n); b.left < 0 {
		return 0, sandbox.Errorf(sandbox.KindInvalid, "unpack image", "", "layers are larger than their files may be")
	}
	return n, err
}
