package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/internal/rollback"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// setupTimeout bounds the making of one sandbox, on a machine that is busy or
// emulated, and removeTimeout its removal.
const (
	setupTimeout  = 30 * time.Second
	removeTimeout = 30 * time.Second
)

// container is what the runtime has made.
type container struct {
	name   string
	stream *net.UnixConn
	said   *tail       // by the runtime and the supervisor, for messages
	proc   *pidfd.File // its first process; runsc: the kernel in which it runs
}

// make makes a sandbox for limits of l's shape, without asking whether what it
// needs was proven: Probe itself uses it.
func (e *Engine) make(ctx context.Context, r *rootfs, l sandbox.Limits) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	runtime, err := e.found(ctx)
	if err != nil {
		return nil, err
	}
	var undo rollback.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Rollback())
		}
	}()
	r.live.Add(1)
	undo.Add("let go of image", func() error { r.live.Add(-1); return nil })
	if err := r.build(); err != nil {
		return nil, err
	}
	began := time.Now()
	firstID, err := e.ids.Take()
	if err != nil {
		return nil, err
	}
	undo.Add("give host ids back", func() error { e.ids.Give(firstID); return nil })
	s := &liveSandbox{engine: e, rootfs: r, firstID: firstID, limits: isolation.RoomToMake(l)}
	s.name = fmt.Sprintf("%s-%d", e.prefix, e.number.Add(1))
	if s.group, err = e.cfg.Cgroups.Create(s.name, e.groupLimits(s.limits)); err != nil {
		return nil, err
	}
	undo.Add("close cgroup", func() error { return s.group.Close() })
	// From here on the runtime may leave things of its own, wherever it fails.
	undo.Add("remove container", func() error { return e.remove(context.WithoutCancel(ctx), runtime.program, s.name) })
	if err := e.start(ctx, runtime.program, s); err != nil {
		return nil, err
	}
	forked := time.Now()
	undo.Add("close container", s.letGo)
	if err := e.boot(ctx, s, l); err != nil {
		return nil, err
	}
	s.making = isolation.Making{Fork: forked.Sub(began), Isolate: time.Since(forked)}
	undo.Release()
	return s, nil
}

// start has the runtime make the container and start its first process.
func (e *Engine) start(ctx context.Context, program string, s *liveSandbox) (err error) {
	bundle, err := e.writeBundle(s.name, e.spec(s.rootfs, s.limits, s.name, s.firstID))
	if err != nil {
		return err
	}
	stream, far, err := streamPair()
	if err != nil {
		return err
	}
	said, w, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stream.Close(), far.Close())
	}
	s.stream, s.said = stream, newTail(said)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w%s", err, s.said.suffix()), stream.Close())
		}
	}()
	pidFile := filepath.Join(bundle, "pid")
	args := e.command(program, "run", "--detach", "--pid-file", pidFile, "--bundle", bundle, s.name)
	p, err := e.spawn(spawn.Spec{Path: program, Args: args, Stdin: far, Stdout: w, Stderr: w})
	if err = errors.Join(err, far.Close(), w.Close()); err != nil {
		return err
	}
	if err := waitFor(ctx, p); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	s.proc, err = firstProcess(pidFile, s.group.Procs)
	return err
}

// streamPair makes the stream to a supervisor: the daemon's end, and the other.
func streamPair() (*net.UnixConn, *os.File, error) {
	stream, fds, err := fdpass.StreamPair()
	if err != nil {
		return nil, nil, err
	}
	return stream, os.NewFile(uintptr(fds[0]), "stream"), nil //nolint:gosec // a descriptor
}

// firstProcess opens the process that the runtime has named. The number may be
// another's by then, so it must be in the container's group while it is held.
func firstProcess(pidFile string, members func() ([]int, error)) (*pidfd.File, error) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, fmt.Errorf("find first process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("find first process: %w", err)
	}
	proc, err := pidfd.Open(pid)
	if err != nil {
		return nil, fmt.Errorf("find first process: %w", err)
	}
	pids, err := members()
	if err == nil && !slices.Contains(pids, pid) {
		err = errors.New("it has ended")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find first process: %w", err), proc.Close())
	}
	return proc, nil
}

// boot gives the supervisor its text and waits for its hello.
func (e *Engine) boot(ctx context.Context, s *liveSandbox, l sandbox.Limits) error {
	config, err := e.confinement(s.rootfs, l)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.stream.Close() })
	defer stop()
	if err = pyrunner.WriteBoot(s.stream, pyrunner.EntrySupervisor, config); err == nil {
		_, err = pyrunner.ReadHello(s.stream)
	}
	if err != nil {
		s.said.wait() // it may be about to say why
		return errors.Join(fmt.Errorf("boot supervisor: %w%s", err, s.said.suffix()), context.Cause(ctx))
	}
	return nil
}

// letGo closes what the daemon holds of a container.
func (c *container) letGo() error {
	err := c.stream.Close()
	if errors.Is(err, net.ErrClosed) { // by boot
		err = nil
	}
	return errors.Join(err, c.proc.Close())
}

// remove ends a container and removes what it was made of, however far it came
// and whatever the runtime does: what that leaves is found by cgroup and by name.
func (e *Engine) remove(ctx context.Context, program, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_, told := e.call(ctx, e.command(program, "delete", "--force", name)...)
	err := errors.Join(e.cfg.Cgroups.Sweep(ctx, name), e.removeState(name), os.RemoveAll(filepath.Join(e.dirs().bundles, name)))
	if err != nil {
		return errors.Join(err, told)
	}
	return nil
}

// removeState removes what the runtime has written down of a container: a
// directory of its name, or runsc's files.
func (e *Engine) removeState(name string) error {
	entries, err := os.ReadDir(e.dirs().state)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.Name() == name || strings.HasPrefix(entry.Name(), name+"_") {
			errs = append(errs, os.RemoveAll(filepath.Join(e.dirs().state, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
