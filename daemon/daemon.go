package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/httpapi"
	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
)

// Deps are what the daemon needs from its host.
type Deps struct {
	Version  string
	Engines  []isolation.Engine // in the order in which they are shown
	Logger   *slog.Logger
	PeerCred func(net.Conn) (tenants.Caller, error)
	Images   catalog.Store // nil for none: runs then get the engines' own image
}

// Daemon is one assembled daemon.
type Daemon struct {
	cfg     config.Config
	deps    Deps
	runs    *runs.Manager
	images  *catalog.Catalog
	server  *http.Server
	release context.CancelFunc // ends requests that outlive the drain
}

// New reaps what a dead daemon left, probes the engines and assembles the
// daemon. An engine that cannot be used is kept and said to be unusable.
func New(ctx context.Context, cfg config.Config, deps Deps) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	if deps.Logger == nil {
		return nil, errors.New("assemble daemon: no logger")
	}
	d := &Daemon{cfg: cfg, deps: deps}
	images, err := catalog.New(cfg.Catalog(), deps.Images, deps.Logger)
	if err != nil {
		return nil, err
	}
	settings := cfg.Runs()
	settings.Images = images
	manager, err := runs.New(settings, d.examine(ctx), deps.Logger)
	if err != nil {
		return nil, err
	}
	api, err := httpapi.New(httpapi.Config{
		Version: deps.Version, Defaults: cfg.DefaultLimits(), Ceilings: cfg.Ceilings(),
		Logger: deps.Logger, PeerCred: deps.PeerCred,
	}, manager, images)
	if err != nil {
		return nil, err
	}
	d.runs, d.images, d.server = manager, images, api.Server()
	base, release := context.WithCancel(context.WithoutCancel(ctx))
	d.release = release
	d.server.BaseContext = func(net.Listener) context.Context { return base }
	return d, nil
}

// Serve answers on listener until ctx ends, then stops in order. It closes the
// listener. A drain that had to cancel runs is no error.
func (d *Daemon) Serve(ctx context.Context, listener net.Listener) error {
	d.images.Keep()
	probing, stopProbing := context.WithCancel(ctx)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		d.probeAgain(probing)
	}()
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(listener) }()
	var err error
	select {
	case err = <-served: // the listener broke
	case <-ctx.Done():
	}
	stopProbing()
	<-probed // what a probe has made is gone before its engine is closed
	stopErr := d.stop(context.WithoutCancel(ctx))
	if err == nil {
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, stopErr)
}

// answerTime is how long the last answers may take to be received.
const answerTime = 5 * time.Second

// stop closes the listener, lets live runs end until the drain's deadline,
// waits for the last answers and closes the engines.
func (d *Daemon) stop(ctx context.Context) error {
	log := d.deps.Logger
	log.LogAttrs(ctx, slog.LevelInfo, "draining", slog.Int64("drain_ms", d.cfg.Shutdown.DrainMillis))
	closed := make(chan error, 1)
	answers, cancel := context.WithTimeout(ctx, d.cfg.Drain()+time.Minute)
	defer cancel()
	go func() { closed <- d.server.Shutdown(answers) }()
	d.images.Stop() // nothing is lost: an import is made again, and it may take longer than a drain

	drain, stopDrain := context.WithTimeout(ctx, d.cfg.Drain())
	defer stopDrain()
	if err := d.runs.Drain(drain); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "drain", slog.Any("err", err))
	}
	var errs []error
	select {
	case err := <-closed:
		if err != nil {
			errs = append(errs, fmt.Errorf("stop server: %w", err))
		}
	case <-time.After(answerTime):
		errs = append(errs, d.server.Close())
		cancel()
		if err := <-closed; err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "answers cut off", slog.Any("err", err))
		}
	}
	d.release()
	for _, e := range d.deps.Engines {
		if err := d.closeEngine(ctx, e); err != nil {
			errs = append(errs, err)
		}
	}
	log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	return errors.Join(errs...)
}

func (d *Daemon) closeEngine(ctx context.Context, e isolation.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		return fmt.Errorf("close engine %s: %w", e.Name(), err)
	}
	return nil
}
