package mountns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Apart is a second mount namespace of this process: one thread lives in it, and
// what is started from that thread does too. What is mounted or unmounted there
// the host does not see, and all of it is gone when the last process in it is, so
// that a daemon that is killed leaves no mounts.
type Apart struct {
	calls chan func()
	stop  func()
	ended chan struct{}
}

// errClosed is the answer of an Apart that has been closed.
var errClosed = errors.New("the mount namespace is closed")

// NewApart makes the namespace as a copy of the host's. Later mounts of the host
// appear in it; its own never appear on the host.
//
// Preconditions: CAP_SYS_ADMIN.
func NewApart() (*Apart, error) {
	closed := make(chan struct{})
	a := &Apart{
		calls: make(chan func()), ended: make(chan struct{}),
		stop: sync.OnceFunc(func() { close(closed) }),
	}
	entered := make(chan error, 1)
	go a.live(entered, closed)
	if err := <-entered; err != nil {
		<-a.ended
		return nil, fmt.Errorf("make mount namespace: %w", err)
	}
	return a, nil
}

// live owns the thread. It is never unlocked, so that it ends with this goroutine
// and nobody else is ever run on it (runtime.LockOSThread).
func (a *Apart) live(entered chan<- error, closed <-chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread stands for the process in /proc/self, and cannot end. While
		// it is held here, the other goroutine gets another one.
		elsewhere := make(chan error, 1)
		go a.live(elsewhere, closed)
		err := <-elsewhere
		runtime.UnlockOSThread()
		entered <- err
		return
	}
	defer close(a.ended)
	err := leaveHost()
	entered <- err
	if err != nil {
		return
	}
	for {
		select {
		case f := <-a.calls:
			f()
		case <-closed:
			return
		}
	}
}

const ownMounts = "/proc/thread-self/ns/mnt"

// leaveHost moves the calling thread, and makes sure that it has moved: what
// follows must never happen to the host's mounts.
func leaveHost() error {
	before, err := os.Readlink(ownMounts)
	if err != nil {
		return err
	}
	// Threads share their root and working directory, which a mount namespace
	// cannot be changed with (unshare(2)).
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	after, err := os.Readlink(ownMounts)
	if err != nil {
		return err
	}
	if after == before {
		return errors.New("the thread is still in the host's namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("part mounts from the host's: %w", err)
	}
	return nil
}

// Do runs f in the namespace, one caller at a time: paths that f names are the
// namespace's, and processes that it starts are in it.
func (a *Apart) Do(f func() error) error {
	done := make(chan error, 1)
	select {
	case a.calls <- func() { done <- f() }:
		return <-done
	case <-a.ended:
		return errClosed
	}
}

// Unmount takes a mount away, in the namespace only.
func (a *Apart) Unmount(path string) error {
	return a.Do(func() error {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s in a namespace of its own: %w", path, err)
		}
		return nil
	})
}

// Build makes the root file system at dir, an existing directory, and closes it
// for writing.
func (a *Apart) Build(dir string, r Root) error {
	return a.Do(func() error {
		trees, err := cloneAll(r.Binds)
		defer closeAll(trees)
		if err != nil {
			return err
		}
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		if r.Bare {
			flags = 0
		}
		if err := unix.Mount("rootfs", dir, "tmpfs", flags, rootOptions); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
		if err := r.fill(dir, trees); err != nil {
			return err
		}
		return closeRoot(dir)
	})
}

// Close lets go of the namespace. Processes in it keep it until they end.
func (a *Apart) Close() {
	a.stop()
	<-a.ended
}
