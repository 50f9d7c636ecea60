package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
)

// local is a container whose processes are this machine's: the kernel can be asked
// about it, at once and whatever becomes of the Engine.
type local struct {
	proc  *pidfd.File // its first process; gVisor: the kernel in which it runs
	group *cgroup.Observed

	waiting sync.Mutex
}

// wait returns when all processes of the container are dead.
func (l *local) wait(ctx context.Context) error {
	l.waiting.Lock()
	defer l.waiting.Unlock()
	return l.proc.Wait(ctx)
}

// locate finds a container by the number of its first process, as the Engine gives
// it. That may be a number of another machine, behind a socket of this one: only a
// process in a group that has the container's name is the container's.
func locate(pid int, id string) (_ *local, err error) {
	if pid <= 0 || len(id) != idDigits {
		return nil, fmt.Errorf("the Engine names process %d of container %q", pid, id)
	}
	proc, err := pidfd.Open(pid)
	if err != nil {
		return nil, fmt.Errorf("find process %d: %w", pid, err)
	}
	group, err := cgroup.Observe(cgroup.DefaultRoot, pid, id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find container: %w", err), proc.Close())
	}
	// The number stood for this process all the while, if it does now.
	if ended, err := proc.Ended(); ended || err != nil {
		return nil, errors.Join(errors.New("the container has ended"), err, proc.Close(), group.Close())
	}
	return &local{proc: proc, group: group}, nil
}

// idDigits is the length of a container's id.
const idDigits = 64

func (l *local) close() error { return errors.Join(l.proc.Close(), l.group.Close()) }
