//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one file system of the machine.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

var mounts = []mount{
	{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"securityfs", "/sys/kernel/security", "securityfs", 0, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, ""},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=620,ptmxmode=666"},
	{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
}

// machine makes of the initramfs what a booted host looks like to a program.
func machine() error {
	if err := leaveInitramfs(); err != nil {
		return fmt.Errorf("leave initramfs: %w", err)
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// As systemd leaves it: what engines then make of their own mounts must not
	// depend on private propagation.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := delegateCgroups(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("sandboxd-vm")); err != nil {
		return err
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return loopback()
}

// leaveInitramfs lays a mount of the root over itself and moves into it, because
// pivot_root(2) refuses a root that is the initial ramfs.
func leaveInitramfs() error {
	const over = "/vm/root"
	if err := os.MkdirAll(over, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", over, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Chdir(over); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// delegateCgroups does what systemd does on a host: every controller is on for
// the children of the root, and processes live below it, since a group with
// processes cannot hand controllers on.
func delegateCgroups() error {
	names, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(names)) {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+name), 0o644); err != nil {
			fmt.Printf("vm: controller %s: %v\n", name, err)
		}
	}
	if err := os.Mkdir("/sys/fs/cgroup/init.scope", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/sys/fs/cgroup/init.scope/cgroup.procs", []byte("1"), 0o644)
}

// loopback brings lo up: the cases listen there for programs that got out.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
