package catalog

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Remove removes a name and, with its last name or by its digest, the image.
func (c *Catalog) Remove(ctx context.Context, caller tenants.Caller, reference string) error {
	if err := c.manage(caller); err != nil {
		return err
	}
	if err := c.store.Remove(reference); err != nil {
		return err
	}
	c.logger.LogAttrs(ctx, slog.LevelInfo, "image removed", slog.Uint64("tenant", uint64(caller.UID)), slog.String("image", reference))
	return nil
}

// Usual is what the configuration takes for garbage.
func (c *Catalog) Usual() Garbage { return Garbage{UnusedFor: c.cfg.Unused, Bytes: c.cfg.Bytes} }

// Collect removes garbage, but nothing that the configuration names.
func (c *Catalog) Collect(ctx context.Context, caller tenants.Caller, g Garbage) ([]sandbox.Image, error) {
	if err := c.manage(caller); err != nil {
		return nil, err
	}
	return c.collect(ctx, g)
}

func (c *Catalog) collect(ctx context.Context, g Garbage) ([]sandbox.Image, error) {
	g.Keep = c.named()
	removed, err := c.store.Collect(ctx, g)
	for _, image := range removed {
		c.logger.LogAttrs(ctx, slog.LevelInfo, "image collected", slog.String("image", image.Digest),
			slog.Any("names", image.Names), slog.Int64("bytes", image.Bytes))
	}
	return removed, err
}

// named is what the configuration names in full: it would be missed.
func (c *Catalog) named() []string {
	var names []string
	if c.cfg.Default != "" {
		names = append(names, c.cfg.Default)
	}
	for _, p := range c.cfg.Allowed {
		if !strings.ContainsAny(p, `*?[\`) {
			names = append(names, p)
		}
	}
	return names
}

// collectEvery is how often garbage is looked for.
const collectEvery = time.Hour

// Keep collects garbage now and then until Stop is called, where the
// configuration says what garbage is.
func (c *Catalog) Keep() {
	if c.cfg.Unused == 0 && c.cfg.Bytes == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.keepings.Go(func() {
		tick := time.NewTicker(collectEvery)
		defer tick.Stop()
		for {
			if _, err := c.collect(c.ctx, c.Usual()); err != nil && c.ctx.Err() == nil {
				c.logger.LogAttrs(c.ctx, slog.LevelError, "collect images", slog.Any("err", err))
			}
			select {
			case <-c.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}
