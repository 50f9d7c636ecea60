//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses between two looks at a group that is emptying.
const (
	firstPause = 500 * time.Microsecond
	lastPause  = 20 * time.Millisecond
)

// Kill sends SIGKILL to every process of the group until none is left, or ctx
// ends. The dead may still be unreaped.
func (g *Group) Kill(ctx context.Context) error {
	err := killAll(ctx, g.files.procs, g.files.pidsMax)
	if err == nil && g.Version() == 1 {
		// killAll shut the group for forks.
		err = write(g.files.pidsMax, strconv.FormatInt(g.limits.Pids, 10))
	}
	if err != nil {
		return fmt.Errorf("kill cgroup %s: %w", g.name, err)
	}
	return nil
}

// Version is 1 or 2, as of the Manager.
func (g *Group) Version() int {
	if _, unified := g.tree.(v2); unified {
		return 2
	}
	return 1
}

// killAll empties the group whose members procs lists. cgroup.kill (v2, Linux
// 5.14) does it in one step. Elsewhere forks are stopped by the pids limit, so
// that a fork bomb can't outrun the loop.
func killAll(ctx context.Context, procs, pidsMax string) error {
	kill := filepath.Join(filepath.Dir(procs), "cgroup.kill")
	atomic := exists(kill)
	if !atomic && exists(pidsMax) {
		if err := write(pidsMax, "0"); err != nil {
			return err
		}
	}
	return poll(ctx, func() (bool, error) {
		pids, err := readPids(procs)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && len(pids) == 0) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if atomic {
			return false, write(kill, "1")
		}
		return false, killListed(procs, pids)
	})
}

// killListed kills pids by pidfd (Linux 5.3). A number may be reused between the
// listing and pidfd_open, so the list is read again: what is still in it was in
// the group while we held its pidfd.
func killListed(procs string, pids []int) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	var held []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case errors.Is(err, unix.ESRCH):
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			// No thread group leader: its process is listed too.
		case err != nil:
			return fmt.Errorf("open pidfd of %d: %w", pid, err)
		default:
			fds, held = append(fds, fd), append(held, pid)
		}
	}
	still, err := readPids(procs)
	if err != nil {
		return err
	}
	for i, fd := range fds {
		if !slices.Contains(still, held[i]) {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill %d: %w", held[i], err)
		}
	}
	return nil
}

// removeDir removes an empty group, waiting while the kernel finishes its last
// processes (EBUSY).
func removeDir(ctx context.Context, dir string) error {
	return poll(ctx, func() (bool, error) {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return true, nil
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINTR):
			return false, nil
		}
		return false, fmt.Errorf("remove %s: %w", dir, err)
	})
}

// poll calls step until it is done, fails, or ctx ends.
func poll(ctx context.Context, step func() (bool, error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := step()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
