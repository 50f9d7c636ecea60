package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
)

// Reap implements isolation.Engine. What a dead daemon leaves carries its label. The
// Docker Engine may still be at work on what that one has asked for, so it is looked
// at again a moment later.
func (e *Engine) Reap(ctx context.Context) error {
	defer e.heal()
	return errors.Join(e.sweep(ctx), e.sweepImages(ctx))
}

// sweep removes the daemon's containers but those that are in use.
func (e *Engine) sweep(ctx context.Context) error {
	list, err := e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", ownerLabel+"="+e.cfg.Owner))})
	if err != nil {
		return e.engineError("list containers", err)
	}
	var errs []error
	for _, c := range list {
		if c.Labels[ownerLabel] != e.cfg.Owner || e.uses(c.Names) {
			continue
		}
		errs = append(errs, e.remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// uses tells whether a container is one that somebody here has and will remove. The
// Engine writes a slash before its name.
func (e *Engine) uses(names []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		if o := e.owned[strings.TrimPrefix(name, "/")]; o != nil && !o.abandoned {
			return true
		}
	}
	return false
}

// remove removes a container, whatever runs in it, and returns when it is gone.
func (e *Engine) remove(ctx context.Context, id string) error {
	for {
		err := e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || cerrdefs.IsNotFound(err):
			return nil
		case !cerrdefs.IsConflict(err): // somebody else's removal is under way
			return e.engineError("remove container", err)
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return fmt.Errorf("remove container: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

const removePause = 20 * time.Millisecond

// removeOwned removes a container of this object's own. One that cannot be removed
// is left to the healer.
func (e *Engine) removeOwned(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := e.remove(ctx, name)
	if err == nil {
		e.disown(name)
		return nil
	}
	e.mu.Lock()
	if o := e.owned[name]; o != nil {
		o.abandoned = true
	}
	e.again = true
	e.mu.Unlock()
	e.heal()
	return err
}

// lost is called when the Docker Engine did not answer: what was made before has
// lost its stream, and what was proven has to be proven again.
func (e *Engine) lost() {
	e.losses.Add(1)
	e.mu.Lock()
	e.support, e.host = nil, nil
	e.mu.Unlock()
	e.heal()
}

// generation changes when the Docker Engine is lost.
func (e *Engine) generation() int64 { return e.losses.Load() }

// heal has what was left behind removed as soon as the Docker Engine answers.
func (e *Engine) heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.healing || e.closed {
		return
	}
	e.healing = true
	e.healer.Go(e.keepHealing)
}

// healPause is how often is looked whether the Docker Engine is back.
const healPause = 500 * time.Millisecond

func (e *Engine) keepHealing() {
	for {
		select {
		case <-time.After(healPause):
		case <-e.ctx.Done():
			return
		}
		if e.healed() {
			return
		}
	}
}

// healed removes what was abandoned, and tells whether there is no more of it.
func (e *Engine) healed() bool {
	ctx, cancel := context.WithTimeout(e.ctx, removeTimeout)
	defer cancel()
	e.mu.Lock()
	e.again = false
	var abandoned []string
	for name, o := range e.owned {
		if o.abandoned {
			abandoned = append(abandoned, name)
		}
	}
	e.mu.Unlock()
	if _, err := e.api.Ping(ctx); err != nil {
		return false
	}
	if err := e.sweep(ctx); err != nil {
		e.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "remove leftovers", slog.String("engine", Name), slog.Any("err", err))
		return false
	}
	for _, name := range abandoned {
		e.disown(name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.healing = e.again
	return !e.healing
}

// sweepImages removes images of the daemon's own that nobody can ask for any more.
func (e *Engine) sweepImages(ctx context.Context) error {
	list, err := e.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", ownerLabel+"="+e.cfg.Owner))})
	if err != nil {
		return e.engineError("list images", err)
	}
	var errs []error
	for _, i := range list {
		digest := i.Labels[imageLabel]
		if i.Labels[ownerLabel] != e.cfg.Owner || digest == "" || e.known(digest) {
			continue
		}
		_, err := e.api.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
		if err != nil && !cerrdefs.IsNotFound(err) {
			errs = append(errs, e.engineError("remove image", err))
		}
	}
	return errors.Join(errs...)
}

// known tells whether a run can name an image.
func (e *Engine) known(digest string) bool {
	if e.cfg.Image != nil && e.cfg.Image.Digest == digest {
		return true
	}
	if e.cfg.Images == nil {
		return false
	}
	use, err := e.cfg.Images.Acquire(digest)
	if err != nil {
		return false
	}
	use.Release()
	return true
}
