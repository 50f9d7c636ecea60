package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/pipes"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// fork has the zygote fork the sandbox and waits until it is ready for its run.
func (s *liveSandbox) fork(ctx context.Context, l sandbox.Limits, want shape) (err error) {
	far, err := s.openEnds(want)
	defer func() {
		closeFiles(far)
		if err != nil {
			err = errors.Join(err, s.closeEnds())
		}
	}()
	if err != nil {
		return err
	}
	if err := s.order(ctx, l, want, append(far, s.group.AttachFiles()...)); err != nil {
		return err
	}
	closeFiles(far)
	far = nil
	stop := context.AfterFunc(ctx, func() { _ = s.proc.Kill() })
	defer stop()
	if err := s.hear(); err != nil {
		_ = s.proc.Kill()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return errors.Join(fmt.Errorf("set up sandbox: %w", err), s.proc.Wait(context.WithoutCancel(ctx)), s.proc.Close())
	}
	return nil
}

// order sends the zygote its order and takes over the first process.
func (s *liveSandbox) order(ctx context.Context, l sandbox.Limits, want shape, files []*os.File) error {
	e := s.engine
	spec := isolation.Spec(isolation.Plan{Limits: l}, isolation.Host{RootPath: "/", FirstID: e.cfg.UIDBase + s.firstID})
	number, err := s.zygote.profile(want, func() (profile, error) {
		config, err := e.confine().Confinement(l)
		if err != nil {
			return profile{}, err
		}
		return newProfile(spec, config, want.supervised)
	})
	if err != nil {
		return err
	}
	forked, err := s.zygote.fork(ctx, number, newOrder(spec, s.firstID), files)
	if err != nil {
		return err
	}
	s.network = forked.Network
	s.proc, err = pidfd.FromFile(forked.pidfd)
	return err
}

// openEnds makes the descriptors of a sandbox and returns those that are for it,
// in the order of guest/isolate.py.
func (s *liveSandbox) openEnds(want shape) (far []*os.File, err error) {
	if want.supervised {
		stream, end, err := fdpass.StreamPair()
		s.stream = stream
		return []*os.File{end}, err
	}
	s.direct = &ends{}
	return s.direct.open()
}

func (s *liveSandbox) closeEnds() error {
	if s.direct != nil {
		return s.direct.close()
	}
	return closed(s.stream.Close())
}

// closed passes over that something was closed before.
func closed(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// hear waits for the sandbox's hello.
func (s *liveSandbox) hear() error {
	if s.stream != nil {
		_, err := pyrunner.ReadHello(s.stream)
		return err
	}
	return s.direct.hear(s.proc)
}

// ends are the daemon's ends of a sandbox without a supervisor.
type ends struct {
	stdin                  *pipes.Memory
	stdout, stderr, report *os.File
	tests                  *os.File
	status                 *net.UnixConn
	program                *pidfd.Foreign
	rlimits                []pyrunner.Rlimit
}

func (d *ends) open() (far []*os.File, err error) {
	take := func(near, end *os.File, e error) *os.File {
		if e == nil {
			far = append(far, end)
		}
		err = errors.Join(err, e)
		return near
	}
	var statusEnd *os.File
	d.status, statusEnd, err = pipes.Signed()
	if err != nil {
		return nil, err
	}
	far = append(far, statusEnd)
	if d.stdin, err = pipes.NewMemory("stdin"); err != nil {
		return far, err
	}
	stdin, e := d.stdin.Share()
	far = append(far, stdin)
	err = errors.Join(err, e)
	for _, near := range []**os.File{&d.stdout, &d.stderr, &d.report} {
		*near = take(pipes.Reading())
		if err != nil {
			return far, err
		}
	}
	// /dev/stdout and /dev/stderr can be opened, and nothing read back from them.
	err = errors.Join(pipes.OpenToOthers(far[2]), pipes.OpenToOthers(far[3]))
	d.tests = take(pipes.Writing())
	return far, err
}

// hear reads the hello, takes hold of its sender, and stops the first process:
// that sleeps already (guest/kernel.py, part), and now needs somebody of its own
// user or session to wake it, of which there is nobody.
func (d *ends) hear(first *pidfd.File) error {
	buf := make([]byte, 4<<10)
	n, pid, err := pipes.ReadSigned(d.status, buf)
	if err != nil {
		return err
	}
	if _, err := pyrunner.ReadHello(bytes.NewReader(buf[:n])); err != nil {
		return err
	}
	if d.program, err = pidfd.OpenForeign(pid); err != nil {
		return err
	}
	// It answers only while it lives, so the number was the program's.
	return first.Stop()
}

// pipes are the ends as a conversation takes them.
func (d *ends) pipes() pyrunner.Pipes {
	return pyrunner.Pipes{
		Stdin: d.stdin, Stdout: d.stdout, Stderr: d.stderr, Report: d.report, Tests: d.tests, Status: d.status,
	}
}

// close may be called again, and on what was opened in part.
func (d *ends) close() error {
	var err error
	for _, f := range []*os.File{d.stdout, d.stderr, d.report, d.tests} {
		if f != nil {
			err = errors.Join(err, closed(f.Close()))
		}
	}
	if d.stdin != nil {
		err = errors.Join(err, closed(d.stdin.Close()))
	}
	if d.status != nil {
		err = errors.Join(err, closed(d.status.Close()))
	}
	if d.program != nil {
		err = errors.Join(err, closed(d.program.Close()))
	}
	return err
}

// programProcess is the program's process of a sandbox without a supervisor.
type programProcess struct{ *liveSandbox }

// Ended implements pyrunner.Process.
func (p programProcess) Ended() (code, signal int, known bool) {
	program := p.direct.program
	err := program.Wait(context.Background()) // ends with the sandbox
	var exit pidfd.Exit
	if err == nil {
		exit, err = program.Exit()
	}
	if err != nil || exit.Signal == sigKill {
		p.askWhoDiedFirst()
	}
	_ = p.liveSandbox.Kill() // Destroy tells what cannot be killed
	return exit.Code, int(exit.Signal), err == nil
}

const sigKill = 9 // signal(7)

// firstNotice is how long a first process may take to end after its program.
const firstNotice = 20 * time.Millisecond

// askWhoDiedFirst finds out whether a killed program was killed by the kernel
// because the first process was. The program cannot reach that: it sleeps, and
// runs nothing that could fail. Its descriptor tells its end after the program's.
func (p programProcess) askWhoDiedFirst() {
	for began := time.Now(); !p.killed.Load() && time.Since(began) < firstNotice; time.Sleep(time.Millisecond) {
		if ended, err := p.proc.Ended(); err == nil && ended {
			p.orphaned.Store(!p.killed.Load())
			return
		}
	}
}

// Kill implements pyrunner.Process.
func (p programProcess) Kill() error {
	p.killed.Store(true)
	return p.direct.program.Kill()
}
