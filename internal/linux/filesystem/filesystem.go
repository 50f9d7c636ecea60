package filesystem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sync writes out everything of the file system that dir is on. For a tree of
// ten thousand files that is one journal commit instead of ten thousand.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Syncfs(int(f.Fd())); err != nil { //nolint:gosec // descriptors fit
		return fmt.Errorf("write out the file system of %s: %w", dir, err)
	}
	return nil
}

// Full tells whether err is the disk's or the quota's end.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// TooManyLinks tells whether err says that a file has as many names as its file
// system allows (65,000 on ext4).
func TooManyLinks(err error) bool { return errors.Is(err, unix.EMLINK) }
