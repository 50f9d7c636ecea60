//go:build linux

package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// mountScript puts the image together on a tmpfs. The shell runs in a private
// mount namespace, which takes all mounts with it when it ends.
func mountScript(img *Image, root string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("set -e; mount -t tmpfs -o mode=755 image %q", root)
	for _, dir := range append([]string{"/proc", "/tmp"}, img.Dirs...) {
		say("mkdir -p %q", root+dir)
	}
	for _, bind := range img.Binds {
		target := root + bind.Target
		if bind.Dir {
			say("mkdir -p %q", target)
		} else {
			say("mkdir -p %q; touch %q", filepath.Dir(target), target)
		}
		say("mount --bind %q %q; mount -o remount,bind,ro,nosuid,nodev %q", bind.Source, target, target)
	}
	for _, link := range img.Symlinks {
		say("mkdir -p %q; ln -s %q %q", filepath.Dir(root+link.Path), link.Target, root+link.Path)
	}
	for _, file := range img.Files {
		say("mkdir -p %q; printf %%s %s > %q", filepath.Dir(root+file.Path), quote(string(file.Data)), root+file.Path)
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// private starts a shell in a mount namespace of its own, by the host's Python:
// unshare(1) is not everywhere, and only internal/linux makes system calls.
const private = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x44000
if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC_PRIVATE, None):
    sys.exit("private mounts: " + os.strerror(ctypes.get_errno()))
os.execvp("sh", ["sh", "-c", *sys.argv[1:]])
`

// inside runs Python code in the mounted image.
func inside(t *testing.T, img *Image, python, code string) (string, error) {
	t.Helper()
	testenv.Root(t)
	testenv.Binary(t, "chroot")
	testenv.Binary(t, "mount")
	root := t.TempDir()
	text := mountScript(img, root) + fmt.Sprintf("exec chroot %q %s -I -S -c \"$0\"\n", root, python)
	cmd := exec.Command(testenv.Python(t), "-I", "-S", "-c", private, text, code)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func hostImage(t *testing.T) *Image {
	t.Helper()
	testenv.Python(t)
	img, err := Host(t.Context(), HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

const useEverything = `
import json, ssl, ctypes, sqlite3, hashlib, decimal, lzma, bz2, zlib, zoneinfo, uuid, curses, readline
import asyncio, multiprocessing, socket, threading, unittest, encodings.idna, grp, locale, os, pwd, sys, datetime
assert not os.path.exists("/usr/share/zoneinfo") or zoneinfo.ZoneInfo("Europe/Paris")
assert ctypes.CDLL("libc.so.6").getpid() > 0 and ctypes.CDLL("libm.so.6")
assert ctypes.CDLL("libgcc_s.so.1")
assert pwd.getpwuid(1000).pw_name == "sandbox" and grp.getgrgid(0).gr_name == "root"
assert locale.setlocale(locale.LC_ALL, "C.UTF-8")
assert socket.getaddrinfo("localhost", 80)
assert datetime.datetime.now().astimezone().tzname() == "UTC"
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
failed = []
for name in sorted(sys.stdlib_module_names):
    if name in ("antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo", "msvcrt", "winreg", "winsound",
                "nt", "ntpath", "asyncio.windows_events", "lib2to3", "distutils", "ensurepip", "venv", "_tkinter"):
        continue
    try:
        __import__(name)
    except ImportError as e:
        if "lib" in str(e) and ".so" in str(e):
            failed.append(str(e))
assert not failed, failed
print("used")
`

func TestHost_RunsPythonByChroot(t *testing.T) {
	img := hostImage(t)
	for _, python := range []string{img.Interpreter, DefaultPython} {
		if out, err := inside(t, img, python, useEverything); err != nil || !strings.Contains(out, "used") {
			t.Errorf("%s: %v\n%s", python, err, out)
		}
	}
}

const lookAround = `
import os
for path in ("/home", "/root", "/var", "/opt", "/etc/shadow", "/etc/ssh", "/etc/ld.so.cache", "/bin/sh", "/usr/bin/sh",
             "/usr/bin/env", "/usr/sbin", "/sbin", "/boot", "/srv", "/mnt", "/usr/include"):
    assert not os.path.lexists(path), path
assert sorted(os.listdir("/usr/bin")) == ["python3", os.path.basename(os.path.realpath("/usr/bin/python3"))], os.listdir("/usr/bin")
assert set(os.listdir("/etc")) <= {"group", "hostname", "hosts", "nsswitch.conf", "passwd", "protocols",
                                   "resolv.conf", "services", "ssl"}, os.listdir("/etc")
assert os.listdir("/etc/ssl") == []
assert set(os.listdir("/")) == {"etc", "lib", "lib64", "proc", "tmp", "usr"} - ({"lib64"} if not os.path.lexists("/lib64") else set())
for path in ("/usr/bin/python3", "/usr/lib", os.__file__):
    if os.path.isfile(path):
        try:
            open(path, "r+b")
        except OSError as e:
            assert e.errno in (26, 30), e  # the running interpreter is busy before it is read-only
        else:
            raise AssertionError(path)
print("nothing else")
`

func TestHost_HoldsNothingElse(t *testing.T) {
	img := hostImage(t)
	out, err := inside(t, img, img.Interpreter, lookAround)
	if err != nil || !strings.Contains(out, "nothing else") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestHost_DescribesSafePaths(t *testing.T) {
	img := hostImage(t)
	seen := map[string]bool{}
	for _, bind := range img.Binds {
		real, err := filepath.EvalSymlinks(bind.Source)
		if err != nil || real != bind.Source {
			t.Errorf("source %s goes through a link", bind.Source)
		}
		if seen[bind.Target] || bind.Target != filepath.Clean(bind.Target) || !filepath.IsAbs(bind.Target) {
			t.Errorf("target %s", bind.Target)
		}
		seen[bind.Target] = true
		for _, closed := range []string{"/home", "/root", "/var", "/etc", "/run", "/proc", "/sys", "/dev"} {
			if inAny(bind.Source, []string{closed}) {
				t.Errorf("%s is bound", bind.Source)
			}
		}
	}
	again := hostImage(t)
	if again.Digest != img.Digest || !strings.HasPrefix(img.Digest, "sha256:") {
		t.Errorf("digest %s, then %s", img.Digest, again.Digest)
	}
	if other, err := Host(t.Context(), HostConfig{Users: []User{{Name: "x"}}}); err != nil || other.Digest == img.Digest {
		t.Errorf("another /etc, the same digest; %v", err)
	}
}
