package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
)

// groups hands out cgroups of sandboxes and uses them again: making and removing
// one costs more than resetting it. A group is used again only when the kernel
// says that no process is in it and that what was charged to it is gone.
type groups struct {
	manager *cgroup.Manager
	keep    int // how many free ones are kept

	mu     sync.Mutex
	free   []*group
	number int
}

// group is a cgroup with the limits that it has now.
type group struct {
	*cgroup.Group
	limits cgroup.Limits
}

// residue is what may still be charged to a group that is used again: the
// kernel's own small change. More is memory of the run before that is still on
// its way out.
const residue = 1 << 20

// tries is how many free groups are looked at before a new one is made.
const tries = 3

// take returns an empty group with these limits.
func (g *groups) take(l cgroup.Limits) (*group, error) {
	for range tries {
		old := g.pop()
		if old == nil {
			break
		}
		clean, err := isClean(old.Group)
		if err != nil {
			return nil, errors.Join(err, emptyAndDelete(old.Group))
		}
		if !clean {
			if !g.push(old) { // others have come back meanwhile
				if err := emptyAndDelete(old.Group); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := old.setLimits(l); err != nil {
			return nil, errors.Join(err, emptyAndDelete(old.Group))
		}
		return old, nil
	}
	g.mu.Lock()
	g.number++
	name := fmt.Sprintf("sandbox-%d", g.number)
	g.mu.Unlock()
	fresh, err := g.manager.Create(name, l)
	if err != nil {
		return nil, err
	}
	return &group{fresh, l}, nil
}

// setLimits changes the limits of a group in use or about to be.
func (g *group) setLimits(l cgroup.Limits) error {
	if g.limits == l {
		return nil
	}
	if err := g.Update(l); err != nil {
		return err
	}
	g.limits = l
	return nil
}

// isClean asks the kernel whether nothing of the run before is left, and starts
// the counters anew. A kernel that cannot forget a peak has no clean groups.
func isClean(g *cgroup.Group) (bool, error) {
	empty, err := g.Empty()
	if err != nil || !empty {
		return false, err
	}
	if err := g.Reset(); err != nil {
		return false, err
	}
	left, err := g.MemoryPeakBytes() // just reset: what is charged now
	return left <= residue, err
}

// give takes a group back whose processes are dead.
func (g *groups) give(ctx context.Context, old *group) error {
	if g.push(old) {
		return nil
	}
	return old.Delete(ctx)
}

func (g *groups) pop() *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) == 0 {
		return nil
	}
	first := g.free[0]
	g.free = g.free[1:]
	return first
}

// push keeps a group at the end of the line, so that the one longest unused is
// used next; false when enough are kept.
func (g *groups) push(old *group) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) >= g.keep {
		return false
	}
	g.free = append(g.free, old)
	return true
}

// idleGroups are the free groups that an idle engine keeps: the next runs', and no
// more, so that it holds what it held before a burst.
const idleGroups = 2

// trim removes free groups of a burst that is over.
func (g *groups) trim() {
	g.mu.Lock()
	excess := g.free[:max(0, len(g.free)-idleGroups)]
	g.free = slices.Clone(g.free[len(excess):])
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	for _, old := range excess {
		_ = old.Delete(ctx) // a leftover is reaped by the next start
	}
}

// close removes the kept groups.
func (g *groups) close(ctx context.Context) error {
	var errs []error
	for old := g.pop(); old != nil; old = g.pop() {
		errs = append(errs, old.Delete(ctx))
	}
	return errors.Join(errs...)
}
