package unpack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// Content is what a tree on the disk holds.
type Content struct {
	Digest         string // "sha256:" and hexadecimal digits
	Bytes, Entries int64
}

// Measure reads a whole tree. Its digest covers names, kinds, contents, link
// targets, modes and when files were changed, so that the
// same tree has the same digest from whatever source it came.
func Measure(ctx context.Context, root *os.Root) (Content, error) {
	m := measure{root: root, sum: sha256.New(), buffer: make([]byte, 256<<10)}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || name == "." {
			return err
		}
		m.content.Entries++
		return m.entry(name, d)
	})
	if err != nil {
		return Content{}, fmt.Errorf("measure tree: %w", err)
	}
	m.content.Digest = "sha256:" + hex.EncodeToString(m.sum.Sum(nil))
	return m.content, nil
}

type measure struct {
	root    *os.Root
	sum     hash.Hash
	content Content
	buffer  []byte
}

func (m *measure) entry(name string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(m.sum, "dir %q %o\n", name, info.Mode().Perm())
		return nil
	case fs.ModeSymlink:
		target, err := m.root.Readlink(name)
		fmt.Fprintf(m.sum, "link %q %q\n", name, target)
		return err
	case 0:
		return m.file(name)
	}
	return fmt.Errorf("%s is of a kind that no image has", name)
}

func (m *measure) file(name string) error {
	f, err := m.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	content := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{content}, f, m.buffer)
	m.content.Bytes += n
	fmt.Fprintf(m.sum, "file %q %o %d %d %x\n", name, info.Mode().Perm(), info.ModTime().Unix(), n, content.Sum(nil))
	return err
}
