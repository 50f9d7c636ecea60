package docker

import (
	"archive/tar"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation"
)

// treeWriter writes an image's root file system as an archive.
type treeWriter struct {
	tar  *tar.Writer
	made map[string]bool // directories
}

// writeTree writes what images.Image describes, in its order. Everything belongs to
// root and is as old as it is in the store: Python's byte code depends on that.
func writeTree(ctx context.Context, w io.Writer, i *images.Image) error {
	t := &treeWriter{tar: tar.NewWriter(w), made: map[string]bool{}}
	// What every sandbox mounts over. runc gives a mount the mode of what it covers.
	t.made["/tmp"] = true
	if err := t.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	for _, dir := range slices.Concat([]string{"/dev", "/proc", "/sys", isolation.Workspace}, i.Dirs) {
		if err := t.dir(dir); err != nil {
			return err
		}
	}
	for _, b := range i.Binds {
		if err := t.bind(ctx, b); err != nil {
			return fmt.Errorf("write %s: %w", b.Target, err)
		}
	}
	for _, l := range i.Symlinks {
		if err := t.link(l.Path, l.Target); err != nil {
			return err
		}
	}
	for _, f := range i.Files {
		if err := t.file(f.Path, int64(f.Mode&0o777), f.Data); err != nil {
			return err
		}
	}
	return t.tar.Close()
}

func member(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// dir makes a directory and those above it.
func (t *treeWriter) dir(p string) error {
	p = path.Clean("/" + p)
	if p == "/" || t.made[p] {
		return nil
	}
	if err := t.dir(path.Dir(p)); err != nil {
		return err
	}
	t.made[p] = true
	return t.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: member(p) + "/", Mode: 0o755})
}

func (t *treeWriter) link(p, target string) error {
	if err := t.dir(path.Dir(p)); err != nil {
		return err
	}
	return t.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: member(p), Linkname: target, Mode: 0o777})
}

func (t *treeWriter) file(p string, mode int64, data []byte) error {
	if err := t.dir(path.Dir(p)); err != nil {
		return err
	}
	if err := t.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: member(p), Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := t.tar.Write(data)
	return err
}

// bind writes a file or directory of the store, which only the daemon writes.
func (t *treeWriter) bind(ctx context.Context, b images.Bind) error {
	if err := t.dir(path.Dir(b.Target)); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(b.Source))
	if err != nil {
		return err
	}
	defer root.Close()
	base := filepath.Base(b.Source)
	return fs.WalkDir(root.FS(), base, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		return t.entry(root, p, path.Join(b.Target, strings.TrimPrefix(p, base)), entry)
	})
}

func (t *treeWriter) entry(root *os.Root, source, target string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: member(target), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case entry.IsDir():
		t.made[path.Clean(target)] = true
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return t.tar.WriteHeader(h)
	case entry.Type() == fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(source); err != nil {
			return err
		}
		return t.tar.WriteHeader(h)
	case !entry.Type().IsRegular():
		return fmt.Errorf("%s is no file, directory or link", source)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.tar.WriteHeader(h); err != nil {
		return err
	}
	f, err := root.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t.tar, f)
	return err
}
