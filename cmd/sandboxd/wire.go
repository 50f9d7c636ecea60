package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sandboxd/sandboxd/daemon"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/internal/linux/peercred"
)

// serve runs the daemon until ctx ends. The lock and the socket come first: what
// a live daemon owns must not be reaped as a dead one's.
func serve(ctx context.Context, cfg config.Config) (err error) {
	logger, err := newLogger(cfg.Log, os.Stderr)
	if err != nil {
		return err
	}
	unlock, err := lockState(cfg.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	listener, err := listen(cfg.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.remove()) }()
	stored, err := openImages(ctx, &cfg, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	engines, err := makeEngines(ctx, &cfg, logger, stored)
	if err != nil {
		return fmt.Errorf("make engines: %w", err)
	}
	d, err := daemon.New(ctx, cfg, daemon.Deps{
		Version: versionText(), Engines: engines, Logger: logger, PeerCred: peerCred,
		Images: newShelf(&cfg, stored, logger),
	})
	if err != nil {
		return err
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("socket", cfg.Socket.Path), slog.String("version", versionText()))
	return d.Serve(ctx, listener)
}

// peerCred asks the kernel who is at the other end.
func peerCred(c net.Conn) (tenants.Caller, error) {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return tenants.Caller{}, fmt.Errorf("read peer credentials: %T is no Unix socket", c)
	}
	cred, err := peercred.Of(unix)
	return tenants.Caller{UID: cred.UID, GID: cred.GID, PID: cred.PID}, err
}

func newLogger(cfg config.Log, w io.Writer) (*slog.Logger, error) {
	level, err := cfg.SlogLevel()
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// terminated gives a context that ends with SIGTERM or SIGINT. SIGHUP does
// nothing yet; it is caught and not ignored, because programs would inherit that.
func terminated(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	hangups := make(chan os.Signal, 1) // never read: signals beyond the first are dropped
	signal.Notify(hangups, syscall.SIGHUP)
	return ctx, func() {
		signal.Stop(hangups)
		cancel()
	}
}

// stateMode lets programs of engine process pass through to their own directory
// below it, and lets nobody list it.
const stateMode = 0o711

// lockState makes the state directory and holds its lock, which the kernel
// drops when the daemon dies.
func lockState(dir string) (unlock func() error, err error) {
	if err := makeDir(dir, stateMode); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { //nolint:gosec // descriptors fit
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock state directory %s: another sandboxd uses it", dir)
		}
		return nil, fmt.Errorf("lock state directory %s: %w", dir, err)
	}
	return f.Close, nil
}

// makeDir makes dir with mode, whatever the umask; one that exists stays as it is.
func makeDir(dir string, mode os.FileMode) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
