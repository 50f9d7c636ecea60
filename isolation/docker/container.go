package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/sandboxd/sandboxd/internal/linux/landlock"
	"github.com/sandboxd/sandboxd/internal/rollback"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// setupTimeout bounds the making of one sandbox, on a machine that is busy, and
// removeTimeout its removal.
const (
	setupTimeout  = 30 * time.Second
	removeTimeout = 30 * time.Second
)

// newSession names the containers of one Engine object, so that they are told from
// those of a daemon before it.
func newSession() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// own takes a name and host ids for a container that is about to be made.
func (e *Engine) own() (name string, firstID uint32, err error) {
	firstID, err = e.ids.Take()
	if err != nil {
		return "", 0, err
	}
	name = fmt.Sprintf("sandboxd-%s-%s-%d", e.cfg.Owner[:8], e.session, e.number.Add(1))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owned[name] = &ownership{firstID: firstID}
	return name, firstID, nil
}

// disown gives back what a container held that is gone.
func (e *Engine) disown(name string) {
	e.mu.Lock()
	o := e.owned[name]
	delete(e.owned, name)
	e.mu.Unlock()
	if o != nil {
		e.ids.Give(o.firstID)
	}
}

// make makes a sandbox for limits of l's shape, without asking whether what it
// needs was proven: Probe itself uses it.
func (e *Engine) make(ctx context.Context, img *dockerImage, l sandbox.Limits) (_ *liveSandbox, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, errors.New("the Docker Engine took too long"))
	defer cancel()
	var undo rollback.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Rollback())
		}
	}()
	began := time.Now()
	name, firstID, err := e.own()
	if err != nil {
		return nil, err
	}
	// The Engine may have made it, whatever it answered.
	undo.Add("remove container", func() error { return e.removeOwned(context.WithoutCancel(ctx), name) })
	s := &liveSandbox{engine: e, name: name, image: img, limits: e.making(l), generation: e.generation()}
	s.ids = e.idsOf(firstID)
	if err := e.create(ctx, s); err != nil {
		return nil, err
	}
	if s.stream, err = e.attach(ctx, s.id); err != nil {
		return nil, err
	}
	undo.Add("close stream", s.stream.Close)
	if err := e.api.ContainerStart(ctx, s.id, container.StartOptions{}); err != nil {
		return nil, e.engineError("start container", err)
	}
	if err := e.find(ctx, s); err != nil {
		return nil, err
	}
	undo.Add("let container go", s.letGo)
	forked := time.Now()
	if err := e.boot(ctx, s, l); err != nil {
		return nil, err
	}
	if err := s.checkLimits(ctx); err != nil {
		return nil, err
	}
	s.making = isolation.Making{Fork: forked.Sub(began), Isolate: time.Since(forked)}
	s.stream.onEnd = s.streamEnded
	undo.Release()
	return s, nil
}

// create makes the container.
func (e *Engine) create(ctx context.Context, s *liveSandbox) error {
	o, err := e.options(s.image, s.limits, s.ids)
	if err != nil {
		return err
	}
	made, err := e.api.ContainerCreate(ctx, o.config, o.host, nil, nil, s.name)
	if cerrdefs.IsNotFound(err) {
		e.forget(s.image)
	}
	if err != nil {
		return e.engineError("create container", err)
	}
	// It warns of what its host lacks, needed or not. checkLimits looks at what counts.
	s.id, s.warnings = made.ID, made.Warnings
	return nil
}

// find looks for the container among this machine's processes, where it is run by
// an Engine of this machine.
func (e *Engine) find(ctx context.Context, s *liveSandbox) error {
	info, err := e.api.ContainerInspect(ctx, s.id)
	if err != nil {
		return e.engineError("find container", err)
	}
	found, err := locate(info.State.Pid, s.id)
	if err == nil && e.blind {
		err = errors.Join(errors.New("nobody looks"), found.close())
	}
	if err != nil {
		s.remote = err.Error()
		return nil
	}
	s.local, s.pid = found, info.State.Pid
	if !e.facts().ownKernel {
		if s.landlock, err = landlock.ABI(); err != nil {
			return errors.Join(fmt.Errorf("ask for Landlock: %w", err), s.letGo())
		}
	}
	return nil
}

// boot gives the supervisor its text and waits for its hello.
func (e *Engine) boot(ctx context.Context, s *liveSandbox, l sandbox.Limits) error {
	config, err := e.confinement(s, l)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.stream.Close() })
	defer stop()
	if err = pyrunner.WriteBoot(s.stream, pyrunner.EntrySupervisor, config); err == nil {
		_, err = pyrunner.ReadHello(s.stream)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(fmt.Errorf("boot supervisor: %w%s", err, s.stream.suffix()), context.Cause(ctx))
	// An end of the stream may be the supervisor's, or the Engine's.
	if _, pingErr := e.api.Ping(ctx); pingErr != nil && isLost(pingErr) {
		return e.engineError("boot supervisor", errors.Join(pingErr, err))
	}
	return err
}
