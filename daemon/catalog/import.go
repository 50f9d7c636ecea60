package catalog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// The causes by which an import ends early, beside its caller's leaving.
var (
	errStopping = errors.New("the daemon is shutting down")
	errTooSlow  = errors.New("it took too long")
)

// Import brings an image in. progress is called by one goroutine, and the import
// waits for it.
func (c *Catalog) Import(ctx context.Context, caller tenants.Caller, o Order, progress func(sandbox.ImageProgress)) (Entry, error) {
	if err := c.manage(caller); err != nil {
		return Entry{}, err
	}
	if err := c.begin(); err != nil {
		return Entry{}, err
	}
	defer c.end()
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ImportTime, errTooSlow)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(errStopping) })()
	if o.Archive != nil {
		defer context.AfterFunc(ctx, o.Archive.Interrupt)()
	}
	image, err := c.store.Import(ctx, o, progress)
	if err != nil {
		return Entry{}, why(ctx, err)
	}
	c.logger.LogAttrs(ctx, slog.LevelInfo, "image imported", slog.Uint64("tenant", uint64(caller.UID)),
		slog.String("image", image.Digest), slog.Any("names", image.Names), slog.Int64("bytes", image.Bytes),
		slog.Float64("run_ms", float64(time.Since(began))/float64(time.Millisecond)))
	return c.entry(image), nil
}

// why gives an import that was ended from here a kind of its own: its caller did
// not cancel it.
func why(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "import image", Subject: "image", Err: cause}
	case errors.Is(cause, errTooSlow):
		return &sandbox.Error{
			Kind: sandbox.KindInvalid, Op: "import image", Subject: "image", Err: cause,
			Mend: "raise import_ms in the section images of the configuration",
		}
	}
	return &sandbox.Error{Kind: sandbox.KindCanceled, Op: "import image", Subject: "image", Err: err}
}

// CheckArchive tells whether a caller's archive would be read at all, before any
// of it is. bytes is what it says its size is, negative where it does not.
func (c *Catalog) CheckArchive(caller tenants.Caller, bytes int64) error {
	if err := c.manage(caller); err != nil {
		return err
	}
	if most := c.store.MostArchive(); bytes > most {
		err := sandbox.Errorf(sandbox.KindInvalid, "import image", "body", "%d bytes are more than %d", bytes, most)
		err.Mend = "raise import_bytes in the section images of the configuration"
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal()
}

// refusal says why no import can begin now. The caller holds the lock.
func (c *Catalog) refusal() error {
	if c.stopped {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "import image", Subject: "image", Err: errStopping}
	}
	if c.busy {
		return &sandbox.Error{
			Kind: sandbox.KindExhausted, Op: "import image", Subject: "image",
			Err: errors.New("another image is being brought in"), Mend: "try again when that has ended",
		}
	}
	return nil
}

func (c *Catalog) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(); err != nil {
		return err
	}
	c.busy = true
	c.keepings.Add(1)
	return nil
}

func (c *Catalog) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	c.keepings.Done()
}

// Stop ends an import that is under way, waits for it, and refuses others.
func (c *Catalog) Stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.cancel(errStopping)
	c.keepings.Wait()
}
