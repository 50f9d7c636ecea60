package daemontest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandboxd/sandboxd/daemon"
	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
)

// Options vary the daemon.
type Options struct {
	Engines   []isolation.Engine // in the order that auto tries
	Configure func(*config.Config)
	Caller    tenants.Caller // who connects
	NoCaller  bool           // connections have no peer credentials
	Images    catalog.Store  // none where nil
}

// Daemon is a running daemon.
type Daemon struct {
	Socket string
	Log    *Log

	nobody bool

	mu     sync.Mutex
	caller tenants.Caller
	err    error
	cancel context.CancelFunc
	done   chan struct{}
}

// Log collects the daemon's log.
type Log struct {
	mu   sync.Mutex
	text []byte
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// String is the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Start runs a daemon until the test ends or Stop is called.
func Start(tb testing.TB, o Options) *Daemon {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sbxd") //nolint:usetesting // short: a socket's path has at most 104 bytes on some systems
	if err != nil {
		tb.Fatal(err)
	}
	d := &Daemon{Socket: filepath.Join(dir, "s"), Log: &Log{}, caller: o.Caller, nobody: o.NoCaller, done: make(chan struct{})}
	cfg := config.Default()
	cfg.Engines.Order = nil
	for _, e := range o.Engines {
		cfg.Engines.Order = append(cfg.Engines.Order, e.Name())
	}
	cfg.Shutdown.DrainMillis = 2000
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context())) // the daemon is stopped in cleanup, after the test's context
	d.cancel = cancel
	assembled, err := daemon.New(ctx, cfg, daemon.Deps{
		Version: "test", Engines: o.Engines, PeerCred: d.peerCred, Images: o.Images,
		Logger: slog.New(slog.NewJSONHandler(d.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("unix", d.Socket)
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(d.done)
		d.err = assembled.Serve(ctx, listener)
	}()
	tb.Cleanup(func() {
		if err := d.Stop(); err != nil {
			tb.Errorf("stop daemon: %v\n%s", err, d.Log)
		}
		_ = os.RemoveAll(dir)
	})
	return d
}

// BeCaller makes later connections come from c.
func (d *Daemon) BeCaller(c tenants.Caller) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.caller = c
}

func (d *Daemon) peerCred(net.Conn) (tenants.Caller, error) {
	if d.nobody {
		return tenants.Caller{}, errors.New("no peer credentials")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.caller, nil
}

// Terminate starts the shutdown, as a signal does, and does not wait.
func (d *Daemon) Terminate() { d.cancel() }

// Stop shuts the daemon down and waits for it.
func (d *Daemon) Stop() error {
	d.cancel()
	<-d.done
	return d.err
}
