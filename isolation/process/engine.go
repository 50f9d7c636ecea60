package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/internal/rollback"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Name is the engine's name.
const Name = "process"

// setupTimeout bounds the making of one sandbox.
const setupTimeout = 30 * time.Second

// Config is what the engine needs; everything is required.
type Config struct {
	Image     *images.Image // the host image; only its paths on the host are used
	Python    string        // the interpreter's path on the host
	Arch      string        // GOARCH
	Dir       string        // of scratch directories; made when missing, nobody else's
	Log       *slog.Logger
	UIDBase   uint32 // first host id for sandboxes, when the daemon is root
	Sandboxes uint32 // live at once, at most
}

// Engine is the process engine.
type Engine struct {
	cfg      Config
	root     bool // may change ids
	landlock int

	mu      sync.Mutex
	free    []uint32
	support *isolation.Support
}

// New makes the engine and its directory.
func New(cfg Config) (*Engine, error) {
	if cfg.Image == nil || cfg.Python == "" || cfg.Arch == "" || cfg.Log == nil || cfg.Sandboxes == 0 || !filepath.IsAbs(cfg.Dir) {
		return nil, errors.New("process engine: image, interpreter, architecture, logger, directory and number of sandboxes are required")
	}
	// Programs pass through it to their own directory and see no other.
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil { //nolint:gosec // as said
		return nil, fmt.Errorf("process engine: %w", err)
	}
	abi, err := landlock.ABI()
	if err != nil {
		return nil, fmt.Errorf("process engine: ask for Landlock: %w", err)
	}
	e := &Engine{cfg: cfg, root: os.Geteuid() == 0, landlock: abi}
	for i := range cfg.Sandboxes {
		e.free = append(e.free, cfg.UIDBase+i)
	}
	return e, nil
}

// Name implements isolation.Engine.
func (e *Engine) Name() string { return Name }

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	support, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if err := support.Refuse(p.Require); err != nil {
		return nil, err
	}
	if _, err := images.Choose(e.cfg.Image, nil, p.Image); err != nil { // it has no root of its own
		return nil, err
	}
	return e.create(ctx, p, support.Layers)
}

func (e *Engine) create(ctx context.Context, p isolation.Plan, layers []sandbox.LayerReport) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	var undo rollback.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Rollback())
		}
	}()
	id, err := e.takeID()
	if err != nil {
		return nil, err
	}
	undo.Add("give host id back", func() error { e.giveID(id); return nil })
	s := &liveSandbox{engine: e, uid: id, dir: filepath.Join(e.cfg.Dir, p.ID), layers: layers}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	undo.Add("remove scratch directory", func() error { return os.RemoveAll(s.dir) })
	if e.root {
		// Nothing runs under this id yet, so nobody can have put a link here.
		if err := os.Lchown(s.dir, int(id), int(id)); err != nil {
			return nil, fmt.Errorf("make scratch directory: %w", err)
		}
	}
	if err := s.start(ctx, p); err != nil {
		return nil, err
	}
	undo.Release()
	return s, nil
}

// start starts the supervisor and waits for its hello.
func (s *liveSandbox) start(ctx context.Context, p isolation.Plan) error {
	e := s.engine
	config, err := isolation.Confine{
		Arch: e.cfg.Arch, Landlock: e.landlock,
		ReadOnly: e.readable(), ReadWrite: []string{s.dir},
		Workspace: s.dir, SitePackages: append([]string{}, e.cfg.Image.SitePackages...),
		// The host's network is the program's too, so it gets no sockets but
		// pairs.
		Sockets: false, OwnUID: e.root, NoCgroup: true, Kill: pyrunner.KillDescendants,
	}.Confinement(p.Limits)
	if err != nil {
		return err
	}
	began := time.Now()
	stream, fds, err := fdpass.StreamPair()
	if err != nil {
		return err
	}
	s.stream = stream
	far := os.NewFile(uintptr(fds[0]), "stream") //nolint:gosec // a descriptor
	s.proc, err = spawn.Start(spawn.Spec{
		Path: e.cfg.Python,
		Args: []string{e.cfg.Python, "-I", "-S", "-X", "utf8", "-c", pyrunner.Bootstrap(), "3", "3"},
		Env:  env(s.dir), Dir: s.dir, Files: []*os.File{far},
		Keep: !e.root, UID: s.uid, GID: s.uid,
	})
	if err = errors.Join(err, far.Close()); err != nil {
		return errors.Join(err, stream.Close())
	}
	forked := time.Now()
	stop := context.AfterFunc(ctx, s.proc.Kill)
	defer stop()
	if err = pyrunner.WriteBoot(stream, pyrunner.EntrySupervisor, config); err == nil {
		_, err = pyrunner.ReadHello(stream)
	}
	if err != nil {
		s.proc.Kill()
		<-s.proc.Done()
		return errors.Join(fmt.Errorf("set up sandbox: %w", err), context.Cause(ctx), stream.Close())
	}
	s.making = isolation.Making{Fork: forked.Sub(began), Isolate: time.Since(forked)}
	return nil
}

// env is isolation.Env with the scratch directory in place of what the host
// does not have.
func env(dir string) []string {
	out := isolation.Env()
	for i, v := range out {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "HOME", "TMPDIR":
			out[i] = name + "=" + dir
		}
	}
	return out
}

// readable are the places of the host that a program may read: Python's own
// files, and its own entry in /proc.
func (e *Engine) readable() []string {
	paths := []string{
		e.cfg.Python, "/etc/ld.so.cache", "/etc/localtime", "/proc/self",
		"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
	}
	for _, b := range e.cfg.Image.Binds {
		paths = append(paths, b.Source)
	}
	return paths
}

func (e *Engine) takeID() (uint32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.free) == 0 {
		return 0, sandbox.Errorf(sandbox.KindExhausted, "take host id", "", "all %d are in use", e.cfg.Sandboxes)
	}
	id := e.free[0]
	e.free = e.free[1:]
	return id, nil
}

func (e *Engine) giveID(id uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = append(e.free, id)
}

// Reap implements isolation.Engine: kills what runs under the engine's ids and
// removes the scratch directories. Without root a dead daemon's supervisors end
// by themselves, with their stream.
func (e *Engine) Reap(ctx context.Context) error {
	if e.root {
		owned := func(uid uint32) bool { return uid >= e.cfg.UIDBase && uid < e.cfg.UIDBase+e.cfg.Sandboxes }
		if err := killOwned(ctx, owned); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(e.cfg.Dir)
	if err != nil {
		return fmt.Errorf("reap process engine: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(e.cfg.Dir, entry.Name())))
	}
	return errors.Join(errs...)
}

// Close implements isolation.Engine; nothing is kept between runs.
func (e *Engine) Close(context.Context) error { return nil }
