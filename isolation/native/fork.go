package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/stdio"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// fork has the zygote fork the sandbox and waits until it is ready for its run.
func (s *liveSandbox) fork(ctx context.Context, l sandbox.Limits, want shape) (err error) {
	far, err := s.openEnds(want)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeEnds())
		}
	}()
	if err != nil {
		return err
	}
	began := time.Now()
	err = s.order(ctx, l, want, append(far, s.group.AttachFDs()...))
	forked := time.Now()
	if err = errors.Join(err, stdio.CloseAll(far)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.proc.Kill() })
	defer stop()
	if err := s.hear(); err != nil {
		_ = s.proc.Kill()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		waitErr := s.proc.Wait(context.WithoutCancel(ctx))
		if waitErr == nil {
			s.zygote.release(s.network) // nobody is in it
		}
		return errors.Join(fmt.Errorf("set up sandbox: %w", err), waitErr, s.proc.Close())
	}
	s.making = isolation.Making{Fork: forked.Sub(began), Isolate: time.Since(forked)}
	return nil
}

// order sends the zygote its order and takes over the first process.
func (s *liveSandbox) order(ctx context.Context, l sandbox.Limits, want shape, fds []int) error {
	e := s.engine
	spec := isolation.Spec(isolation.Plan{Limits: l}, isolation.Host{RootPath: "/", FirstID: e.cfg.UIDBase + s.firstID})
	newProfile := func() (profile, error) {
		config, err := e.confine(s.image).Confinement(l)
		if err != nil {
			return profile{}, err
		}
		return newProfile(spec, config, want.supervised, len(s.group.AttachFDs()))
	}
	o := newOrder(spec, s.firstID)
	o.Ahead = s.ahead
	forked, err := s.zygote.fork(ctx, want, newProfile, o, fds)
	if err != nil {
		return err
	}
	s.network = forked.Network
	s.proc, err = pidfd.FromFile(forked.pidfd)
	return err
}

// openEnds makes the descriptors of a sandbox and returns those that are for it,
// in the order of guest/isolate.py.
func (s *liveSandbox) openEnds(want shape) (far []int, err error) {
	if want.supervised {
		s.stream, far, err = fdpass.StreamPair()
	} else {
		s.direct, far, err = stdio.Open()
	}
	return far, err
}

func (s *liveSandbox) closeEnds() error {
	if s.direct != nil {
		return s.direct.Close()
	}
	if s.stream == nil {
		return nil
	}
	if err := s.stream.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// hear waits for the sandbox's hello.
func (s *liveSandbox) hear() error {
	if s.stream != nil {
		_, err := pyrunner.ReadHello(s.stream)
		return err
	}
	buf := make([]byte, 4<<10)
	n, pid, err := s.direct.Hello(buf)
	if err != nil {
		return err
	}
	if _, err := pyrunner.ReadHello(bytes.NewReader(buf[:n])); err != nil {
		return err
	}
	if err := s.direct.Hold(pid); err != nil {
		return err
	}
	// The first process sleeps already (guest/kernel.py, PART). Stopped, it needs
	// somebody of its own user or session to wake it, of which there is nobody.
	return s.proc.Stop()
}

// program is the one of a sandbox without a supervisor.
type program struct {
	*stdio.Streams
	sandbox *liveSandbox
	heard   bool // anything at all
}

// Listen implements pyrunner.Program.
func (p *program) Listen(buf []byte, patience time.Duration) (pyrunner.Heard, int, error) {
	from, n, err := p.Streams.Listen(buf, patience)
	p.heard = p.heard || from >= 0
	switch from {
	case stdio.Status:
		return pyrunner.HeardStatus, n, err
	case stdio.Stdout:
		return pyrunner.HeardStdout, n, err
	case stdio.Stderr:
		return pyrunner.HeardStderr, n, err
	case stdio.Report:
		return pyrunner.HeardReport, n, err
	case stdio.Ended:
		return pyrunner.HeardEnd, n, err
	case stdio.None:
	}
	return pyrunner.HeardNothing, n, err
}

// Exit implements pyrunner.Program. A program says that it begins before anything
// untrusted runs (guest/direct.py). One that has said nothing was killed while it
// waited, and its end is none of a run.
func (p *program) Exit() (code, signal int, known bool) {
	exit, err := p.Streams.Exit()
	if err != nil || exit.Code < 0 {
		// The sleeper cannot be reached from inside: when it is ending too, the sandbox
		// was killed, and with it the program.
		if dying, askErr := p.sandbox.proc.Dying(); askErr == nil && dying {
			p.sandbox.undone.Store(true)
		}
	}
	if err != nil {
		_ = p.sandbox.Kill() // Destroy tells what cannot be killed
	}
	p.sandbox.alone.Store(err == nil)
	return exit.Code, int(exit.Signal), err == nil && p.heard
}
