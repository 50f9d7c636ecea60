package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sandbox"
)

const stdinName = "-"

// maxInput bounds what is read of one file; the daemon takes no larger body.
const maxInput = 8 << 20

// readInput reads a file, or standard input for "-".
func (a *app) readInput(name string) ([]byte, error) {
	in := a.in
	if name != stdinName {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{err}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, usagef("read %s: %w", name, err)
	}
	if len(text) > maxInput {
		return nil, usagef("%s is larger than %s", name, bytesText(maxInput))
	}
	return text, nil
}

// readText reads what has to be text.
func (a *app) readText(name string) (string, error) {
	text, err := a.readInput(name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(text) {
		return "", usagef("%s is not UTF-8", name)
	}
	return string(text), nil
}

// readFiles reads PATH or PATH=SRC arguments.
func (a *app) readFiles(args []string) ([]sandbox.File, error) {
	var files []sandbox.File
	for _, arg := range args {
		dst, src, ok := strings.Cut(arg, "=")
		if !ok {
			dst, src = filepath.ToSlash(arg), arg
		}
		content, err := a.readInput(src)
		if err != nil {
			return nil, err
		}
		f := sandbox.File{Path: dst, Content: string(content)}
		if !utf8.Valid(content) {
			f.Content, f.Encoding = base64.StdEncoding.EncodeToString(content), sandbox.EncodingBase64
		}
		if info, err := os.Stat(src); err == nil && info.Mode()&0o100 != 0 {
			f.Mode = "0755"
		}
		files = append(files, f)
	}
	return files, nil
}

// writeArtifacts writes files of an untrusted program into dir and never out of
// it: through os.Root, which follows no link that leads outside.
func writeArtifacts(dir string, artifacts []sandbox.Artifact) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, f := range artifacts {
		if err := writeArtifact(root, f); err != nil {
			errs = append(errs, fmt.Errorf("write artifact %q: %w", f.Path, err))
		}
	}
	return errors.Join(errs...)
}

func writeArtifact(root *os.Root, f sandbox.Artifact) error {
	if !fs.ValidPath(f.Path) || f.Path == "." {
		return errors.New("not a relative path")
	}
	if parent := path.Dir(f.Path); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	out, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(f.Content)
	return errors.Join(err, out.Close())
}
