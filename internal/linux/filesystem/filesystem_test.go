package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSync_WritesOut(t *testing.T) {
	dir := t.TempDir()
	if err := Sync(dir); err != nil {
		t.Error(err)
	}
	if err := Sync(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestBounds(t *testing.T) {
	if !Full(fmt.Errorf("write: %w", unix.ENOSPC)) || Full(unix.EIO) || Full(nil) {
		t.Error("only the disk's end is its end")
	}
	if !TooManyLinks(fmt.Errorf("link: %w", unix.EMLINK)) || TooManyLinks(unix.ELOOP) || TooManyLinks(nil) {
		t.Error("only a file's names are too many links")
	}
}
