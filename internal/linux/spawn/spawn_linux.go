package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Spec describes a process to start.
type Spec struct {
	Path string   // absolute, or "/proc/self/exe"
	Args []string // with the name in front
	Env  []string // the whole environment
	Dir  string

	// Files become descriptors 3, 4, … of the process. Standard input, output
	// and error are /dev/null unless given.
	Files  []*os.File
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File

	// UID and GID are what the process becomes, without supplementary groups;
	// with Isolate they are ids inside the new user namespace. Keep leaves the
	// daemon's own ids.
	Keep     bool
	UID, GID uint32

	// Isolate starts it in new user, pid, mount, network, IPC and UTS
	// namespaces, with IDs mapped from 0 on.
	Isolate  bool
	FirstID  uint32 // host id that 0 maps to
	CountIDs uint32
}

// Process is a started process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts the process in a session of its own.
func Start(s Spec) (*Process, error) {
	cmd := &exec.Cmd{Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir, ExtraFiles: s.Files}
	if s.Env == nil {
		cmd.Env = []string{} // nil would mean the daemon's own
	}
	s.connect(cmd)
	attr := &syscall.SysProcAttr{Setsid: true}
	if !s.Keep {
		attr.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID}
	}
	if s.Isolate {
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
			unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(s.FirstID), Size: int(s.CountIDs)}}
		attr.UidMappings, attr.GidMappings = mapping, mapping
		attr.GidMappingsEnableSetgroups = true
	}
	cmd.SysProcAttr = attr
	// Go marks its own descriptors close-on-exec, but not those that the daemon
	// itself inherited (close_range(2), Linux 5.11).
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start %s: mark descriptors: %w", s.Args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Args[0], err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// connect gives the standard streams. A nil *os.File in an interface would not be
// nil.
func (s Spec) connect(cmd *exec.Cmd) {
	if s.Stdin != nil {
		cmd.Stdin = s.Stdin
	}
	if s.Stdout != nil {
		cmd.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		cmd.Stderr = s.Stderr
	}
}

// PID is the process id in the daemon's namespace.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// GiveWay has the process and what it starts without a new session take second
// place to others on a busy processor: nice is that of their scheduling group
// (sched(7), The autogroup feature). Where the kernel makes no such groups, or the
// process is in a cpu cgroup, it has no effect.
func (p *Process) GiveWay(nice int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", p.PID()), []byte(strconv.Itoa(nice)), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Kill sends SIGKILL. The first process of a pid namespace takes the whole
// namespace with it (pid_namespaces(7)).
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// KillGroup sends SIGKILL to the process and to what it has started that has not
// begun a session of its own.
func (p *Process) KillGroup() {
	select {
	case <-p.done: // its number may be another's
	default:
		_ = unix.Kill(-p.PID(), unix.SIGKILL)
	}
}

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how it ended, after Done: nil for exit code 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}
