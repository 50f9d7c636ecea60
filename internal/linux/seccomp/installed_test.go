//go:build linux

package seccomp

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

const roleVariable = "SECCOMP_TEST_ROLE"

// TestMain installs a filter when re-executed and compares the kernel's answers.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "plain":
		err = installed(Profile{})
	case "both":
		err = installed(Profile{AllowProcesses: true, AllowSockets: true})
	case "supervisor":
		err = supervised()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// minusOne in every argument makes each listed call fail in the kernel, with
// another errno than EPERM and without effect, should the filter let it through.
const minusOne = ^uintptr(0)

func call(name string, args ...uintptr) (unix.Errno, error) {
	numbers, err := Numbers(runtime.GOARCH, name)
	if err != nil {
		return 0, err
	}
	full := [6]uintptr{minusOne, minusOne, minusOne, minusOne, minusOne, minusOne}
	copy(full[:], args)
	_, _, errno := unix.RawSyscall6(uintptr(numbers[name]), full[0], full[1], full[2], full[3], full[4], full[5])
	return errno, nil
}

// expect collects wrong answers; calls that this architecture lacks are left out.
func expect(errs *[]error, want unix.Errno, name string, args ...uintptr) {
	if _, err := Numbers(runtime.GOARCH, name); err != nil {
		return
	}
	got, err := call(name, args...)
	if err != nil || got != want {
		*errs = append(*errs, fmt.Errorf("%s%v: %w, want %w; %w", name, args, got, want, err))
	}
}

func installed(p Profile) error {
	filter, err := Program(runtime.GOARCH, p)
	if err != nil {
		return err
	}
	if err := Install(filter); err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Concat(deniedCalls, hostCalls) {
		expect(&errs, unix.EPERM, name)
	}
	for _, name := range []string{"clone3", "io_setup", "cachestat", "sysfs"} {
		expect(&errs, unix.ENOSYS, name)
	}
	expect(&errs, unix.EPERM, "clone", unix.CLONE_NEWUSER|17)
	expect(&errs, unix.EPERM, "ioctl", minusOne, unix.TIOCSTI)
	expect(&errs, unix.EBADF, "ioctl", minusOne, unix.TCGETS)
	expect(&errs, unix.ENOTTY, "ioctl", minusOne, unix.SIOCGIFINDEX)
	expect(&errs, unix.EPERM, "prctl", unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	expect(&errs, unix.EPERM, "prctl", unix.PR_SET_SECCOMP, 2, 0, 0, 0)
	expect(&errs, 0, "prctl", unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	expect(&errs, unix.EPERM, "personality", 0x40000)
	expect(&errs, 0, "personality", 0xffffffff)
	expect(&errs, unix.EPERM, "prlimit64", 1, 0, 0, 0)
	expect(&errs, 0, "prlimit64", 0, 0, 0, 0)
	expect(&errs, unix.EPERM, "mknodat", minusOne, 0, unix.S_IFCHR|0o600, 0)
	expect(&errs, unix.EPERM, "sched_setscheduler", 0, unix.SCHED_FIFO)
	expect(&errs, unix.EPERM, "fcntl", 0, unix.F_NOTIFY)
	expect(&errs, 0, "getpid")
	return errors.Join(append(errs, profiled(p)...)...)
}

// profiled checks what the profile decides.
func profiled(p Profile) []error {
	var errs []error
	family, kind, exec := unix.EAFNOSUPPORT, unix.EPERM, unix.EFAULT
	if !p.AllowSockets {
		family = unix.EPERM
	}
	if !p.AllowProcesses {
		exec = unix.EPERM
		expect(&errs, unix.EPERM, "clone", 17)
		expect(&errs, unix.EPERM, "fork")
		expect(&errs, unix.EPERM, "vfork")
	}
	expect(&errs, exec, "execve")
	expect(&errs, family, "socket", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	expect(&errs, family, "socket", unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	expect(&errs, family, "socket", unix.AF_NETLINK, unix.SOCK_RAW, 0)
	expect(&errs, kind, "socket", unix.AF_INET, unix.SOCK_RAW, 0)
	return errs
}

func supervised() error {
	outer, err := Supervisor(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := Install(outer); err != nil {
		return err
	}
	var errs []error
	for _, name := range hostCalls {
		expect(&errs, unix.EPERM, name)
	}
	expect(&errs, unix.ENOSYS, "clone3")
	expect(&errs, unix.EPERM, "clone", unix.CLONE_NEWNS|17)
	expect(&errs, unix.EAFNOSUPPORT, "socket", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err := exec.Command("/bin/true").Run(); err != nil {
		errs = append(errs, fmt.Errorf("the supervisor can't start a process: %w", err))
	}
	// Filters add up: the program's goes on top.
	return errors.Join(append(errs, installed(Profile{}))...)
}

func TestInstalled_KernelAnswers(t *testing.T) {
	testenv.Kernel(t, 5, 14) // the youngest call compared with ENOSYS-less answers
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"plain", "both", "supervisor"} {
		cmd := exec.Command(self)
		cmd.Env = []string{roleVariable + "=" + role}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", role, err, out)
		}
	}
}

func TestInstall_RefusesNoProgram(t *testing.T) {
	for _, filter := range [][]byte{nil, make([]byte, 7), make([]byte, 8*(maxInstructions+1))} {
		if err := Install(filter); err == nil {
			t.Errorf("%d bytes were installed", len(filter))
		}
	}
}

// python runs a script of testdata under a profile's filter.
func python(t *testing.T, p Profile, script string) (string, error) {
	t.Helper()
	filter, err := Program(runtime.GOARCH, p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Python(t), "-I", "-X", "faulthandler",
		filepath.Join("testdata", "install.py"), hex.EncodeToString(filter), filepath.Join("testdata", script))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestPython_StandardLibrary(t *testing.T) {
	if out, err := python(t, Profile{}, "stdlib.py"); err != nil || !strings.Contains(out, "all well") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPython_ProcessesAndSockets(t *testing.T) {
	p := Profile{AllowProcesses: true, AllowSockets: true}
	if out, err := python(t, p, "processes.py"); err != nil || !strings.Contains(out, "all well") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPython_ForeignConventionKills(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // int 0x80 is amd64's
	}
	out, err := python(t, Profile{}, "foreign.py")
	var exit *exec.ExitError
	// Kernels without 32-bit emulation fault instead.
	if !errors.As(err, &exit) || strings.Contains(out, "alive") {
		t.Fatalf("%v\n%s", err, out)
	}
	if text := exit.String(); !strings.Contains(text, "bad system call") && !strings.Contains(text, "segmentation fault") {
		t.Errorf("ended with %s\n%s", text, out)
	}
}
