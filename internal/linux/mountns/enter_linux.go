package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind shows Source, a file or a directory of the host, at Target.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Device   bool   `json:"device,omitempty"`   // a device node: may be opened as such
	Writable bool   `json:"writable,omitempty"` // only for devices, whose node is written through
}

// File is a small file made in the root.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Data []byte `json:"data"`
}

// Symlink is a link made in the root.
type Symlink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Root describes a root file system: a small tmpfs that holds only what is
// listed, read-only in the end.
type Root struct {
	// Bare leaves nosuid and nodev off the tmpfs itself, which holds nothing that
	// they would stop: in a user namespace they are locked, and gVisor mounts the
	// root anew without them.
	Bare bool `json:"bare,omitempty"`

	Dirs     []string  `json:"dirs"`             // mount points and empty directories
	Sticky   []string  `json:"sticky,omitempty"` // those that everybody may write to, as /tmp
	Binds    []Bind    `json:"binds"`
	Files    []File    `json:"files"`
	Symlinks []Symlink `json:"symlinks"`
}

// Enter makes the root, mounts a new /proc in it and makes it the process's
// root directory; nothing of the old root stays reachable.
//
// Preconditions: mount namespace, pid namespace and CAP_SYS_ADMIN of its own.
func Enter(r Root) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Sources first: the staging directory may hide one of them.
	trees, err := cloneAll(r.Binds)
	defer closeAll(trees)
	if err != nil {
		return err
	}
	stage, err := stageTmpfs()
	if err != nil {
		return err
	}
	if err := r.fill(stage, trees); err != nil {
		return err
	}
	// While the old /proc is still mounted: the kernel allows a new one in a user
	// namespace only where a whole one is visible (mount_too_revealing,
	// fs/namespace.c).
	if err := unix.Mount("proc", filepath.Join(stage, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return pivot(stage)
}

func cloneAll(binds []Bind) ([]int, error) {
	var trees []int
	for _, b := range binds {
		fd, err := unix.OpenTree(unix.AT_FDCWD, b.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return trees, fmt.Errorf("bind %s: %w", b.Source, err)
		}
		trees = append(trees, fd)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
		if !b.Writable {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if b.Device {
			attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
		} else {
			attr.Attr_set |= unix.MOUNT_ATTR_NODEV
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return trees, fmt.Errorf("bind %s: set attributes: %w", b.Source, err)
		}
	}
	return trees, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// rootOptions are those of a root's tmpfs, which holds directories, links and a
// few small files.
const rootOptions = "size=4m,nr_inodes=4096,mode=0755"

// stageTmpfs mounts the tmpfs that becomes the root over a directory that every
// host has. Only this mount namespace sees it.
func stageTmpfs() (string, error) {
	var errs []error
	for _, dir := range []string{"/tmp", "/run", "/mnt", "/usr"} {
		err := unix.Mount("rootfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, rootOptions)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, fmt.Errorf("mount tmpfs on %s: %w", dir, err))
	}
	return "", errors.Join(errs...)
}

func (r Root) fill(stage string, trees []int) error {
	for _, dir := range append([]string{"proc"}, r.Dirs...) {
		if err := os.MkdirAll(filepath.Join(stage, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range r.Sticky {
		path := filepath.Join(stage, dir)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o777|os.ModeSticky)); err != nil {
			return err
		}
	}
	for i, b := range r.Binds {
		if err := attach(trees[i], b, stage); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		path := filepath.Join(stage, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, fs.FileMode(f.Mode).Perm()); err != nil {
			return err
		}
	}
	for _, l := range r.Symlinks {
		path := filepath.Join(stage, l.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(l.Target, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// attach makes the mount point and moves the cloned tree onto it.
func attach(tree int, b Bind, stage string) error {
	target := filepath.Join(stage, b.Target)
	if !strings.HasPrefix(target, stage+"/") {
		return fmt.Errorf("bind %s: target %q is outside the root", b.Source, b.Target)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return fmt.Errorf("bind %s: %w", b.Source, err)
	}
	if err := makeMountPoint(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return fmt.Errorf("bind %s: %w", b.Source, err)
	}
	err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("bind %s at %s: %w", b.Source, b.Target, err)
	}
	return nil
}

func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// pivot makes stage the root, lets go of the old one and closes the new one for
// writing.
func pivot(stage string) error {
	if err := os.Chdir(stage); err != nil {
		return err
	}
	// pivot_root(".", ".") stacks the old root on the new one, so that no
	// directory is needed to put it (pivot_root(2), notes).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return closeRoot("/")
}

// closeRoot makes the mount at path read-only; those below it are what they are.
func closeRoot(path string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

// Exec replaces the process (execve(2)); it returns only with an error. It is
// the end of every setup that Enter begins.
func Exec(path string, args, env []string) error {
	if err := unix.Exec(path, args, env); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}
