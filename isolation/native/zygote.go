package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/linux/cgroup"
	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
	"github.com/sandboxd/sandboxd/internal/linux/pidfd"
	"github.com/sandboxd/sandboxd/internal/linux/spawn"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// zygoteMemory caps a zygote's own group. What it shares with its children is
// charged to it, not to them.
const zygoteMemory = 512 << 20

// readyNice has runs served before sandboxes are made ahead and those of runs that
// have ended are taken down, which is the zygote's and its children's work. A
// program leaves their session, and so this priority.
const readyNice = 10

// zygote is one image's container: the interpreter that forks supervisors.
type zygote struct {
	proc    *spawn.Process
	control *fdpass.Conn
	group   *cgroup.Group
	stderr  *tail

	users atomic.Int64 // sandboxes being made or alive
	forks atomic.Int64

	hurried atomic.Bool // it has no low priority

	mu       sync.Mutex
	nextID   uint64
	waiting  map[uint64]chan forked // closed without a value when the zygote is gone
	queue    []*waitingOrder        // not sent yet
	busy     bool                   // it has orders that it has not answered
	gone     bool
	profiles map[shape]*knownProfile // those that it was told and has kept
	told     uint64                  // how many it was told in all
	released []int                   // networks that it can use again
}

// forked is the zygote's answer to an order.
type forked struct {
	ID      uint64              `json:"id"`
	PID     int                 `json:"pid"`
	Network int                 `json:"network"`
	Error   *pyrunner.GuestFail `json:"error"`
	pidfd   *os.File
	err     error // it was not sent
}

// zygoteConfig is the zygote entry's configuration (guest/zygote.py).
type zygoteConfig struct {
	Numbers      map[string]int `json:"numbers"`
	Groups       []int          `json:"groups"` // descriptors to join cgroups by
	SitePackages []string       `json:"site_packages"`
	Preload      []string       `json:"preload"`
	Calls        []byte         `json:"calls"`       // machine code (calls.go)
	Environment  []string       `json:"environment"` // names of variables to take away
}

// startZygote makes a container and boots the image's interpreter in it.
func startZygote(ctx context.Context, cfg Config, image *images.Image, preload []string, group *cgroup.Group) (z *zygote, err error) {
	control, far, err := fdpass.Pair()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, control.Close())
		}
	}()
	defer closeFiles([]*os.File{far}) // the child has its own copy
	setupRead, setupWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer closeFiles([]*os.File{setupRead, setupWrite})
	bootRead, bootWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer closeFiles([]*os.File{bootRead, bootWrite})
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	proc, err := spawn.Start(spawn.Spec{
		Path: "/proc/self/exe", Args: []string{ContainerName}, Dir: "/", Stderr: errWrite,
		Files:   append([]*os.File{setupRead, bootRead, far}, group.AttachFiles()...),
		Isolate: true, FirstID: cfg.UIDBase, CountIDs: cfg.ids(),
	})
	err = errors.Join(err, errWrite.Close())
	if err != nil {
		return nil, errors.Join(err, errRead.Close())
	}
	z = &zygote{proc: proc, control: control, group: group, stderr: newTail(errRead), waiting: map[uint64]chan forked{}, profiles: map[shape]*knownProfile{}}
	// Our copies go first: a reader's end must be seen as such.
	closeFiles([]*os.File{setupRead, bootRead, far})
	err = json.NewEncoder(setupWrite).Encode(newContainer(image))
	if err == nil {
		err = setupWrite.Close()
	}
	if err == nil {
		err = z.boot(ctx, cfg, zygoteConfig{
			SitePackages: orEmpty(image.SitePackages), Preload: orEmpty(preload),
		}, bootWrite)
	}
	if err != nil {
		z.kill()
		return nil, fmt.Errorf("boot zygote: %w%s", err, z.stderr.suffix())
	}
	z.hurried.Store(true)
	go z.receive()
	return z, nil
}

// boot sends the guest's code and waits until it is ready for orders.
func (z *zygote) boot(ctx context.Context, cfg Config, config zygoteConfig, w *os.File) error {
	stop := context.AfterFunc(ctx, z.proc.Kill)
	defer stop()
	go func() { // an early death must not leave us waiting for its answer
		<-z.proc.Done()
		_ = z.control.Close()
	}()
	numbers, err := isolation.Numbers(cfg.Arch)
	if err != nil {
		return err
	}
	config.Numbers, config.Groups = numbers, []int{}
	if !cfg.slowCalls {
		config.Calls = callsCode(cfg.Arch)
	}
	for _, variable := range zygoteEnv() {
		name, _, _ := strings.Cut(variable, "=")
		config.Environment = append(config.Environment, name)
	}
	for i := range z.group.AttachFiles() {
		config.Groups = append(config.Groups, groupsFD+i)
	}
	if err := pyrunner.WriteBoot(w, pyrunner.EntryZygote, config); err != nil {
		return err
	}
	message, files, err := z.control.Receive()
	closeFiles(files)
	if err != nil {
		return err
	}
	var ready struct{ Ready bool }
	if err := json.Unmarshal(message, &ready); err != nil || !ready.Ready {
		return fmt.Errorf("unexpected first message %q", message)
	}
	return nil
}

// release gives a network back, with the next order.
func (z *zygote) release(network int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.released = append(z.released, network)
}

// mostAtOnce is how many sandboxes a zygote forks at one go (guest/isolate.py).
const mostAtOnce = 4

// waitingOrder is an order that is not sent yet.
type waitingOrder struct {
	order   order
	profile uint64
	fds     []int
}

// fork orders one child of a shape, whose profile newProfile makes where the
// zygote does not have it. fds are the child's descriptors and its cgroups' attach files; they
// stay the caller's.
//
// Orders that come while the zygote is at work are sent together when it is done.
func (z *zygote) fork(ctx context.Context, s shape, newProfile func() (profile, error), o order, fds []int) (*forked, error) {
	z.forks.Add(1)
	z.mu.Lock()
	if z.gone {
		z.mu.Unlock()
		return nil, z.goneError()
	}
	answer := make(chan forked, 1)
	z.nextID++
	o.ID = z.nextID
	number, err := z.profile(s, newProfile)
	if err != nil {
		z.mu.Unlock()
		return nil, err
	}
	z.waiting[o.ID] = answer
	z.queue = append(z.queue, &waitingOrder{o, number, fds})
	z.mu.Unlock()
	runtime.Gosched() // others who are about to order
	z.sendOrders()
	select {
	case f, ok := <-answer:
		switch {
		case !ok:
			return nil, z.goneError()
		case f.Error != nil:
			if f.Network >= 0 {
				z.release(f.Network) // nobody is in it
			}
			return nil, &sandbox.StepError{Step: f.Error.Step, Index: f.Error.Index, Errno: f.Error.Errno, Message: f.Error.Message}
		case f.err != nil:
			return nil, f.err
		}
		return &f, nil
	case <-ctx.Done():
		z.forget(o.ID) // receive ends the child
		return nil, context.Cause(ctx)
	}
}

// sendOrders sends what waits, as much as may go together, to a zygote that has
// nothing to do.
func (z *zygote) sendOrders() {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.busy || z.gone || len(z.queue) == 0 {
		return
	}
	message := orders{Kind: "fork", Profile: z.queue[0].profile, Released: orEmpty(z.released)}
	var fds []int
	for len(z.queue) > 0 && len(message.Sandboxes) < mostAtOnce && z.queue[0].profile == message.Profile {
		message.Sandboxes = append(message.Sandboxes, z.queue[0].order)
		fds = append(fds, z.queue[0].fds...)
		z.queue = z.queue[1:]
	}
	text, err := json.Marshal(message)
	if err == nil {
		// Under the lock, so that nobody who gives up closes a descriptor before it is
		// sent. There is room: the zygote reads before it is sent more.
		err = z.control.SendFDs(text, fds)
	}
	if err == nil {
		z.busy, z.released = true, nil
		return
	}
	for _, o := range message.Sandboxes {
		if answer, ok := z.waiting[o.ID]; ok {
			delete(z.waiting, o.ID)
			answer <- forked{err: sandbox.Errorf(sandbox.KindUnavailable, "send order", "zygote", "%w", err)} // it is ending
		}
	}
}

func (z *zygote) forget(id uint64) {
	z.mu.Lock()
	answer, ok := z.waiting[id]
	delete(z.waiting, id)
	z.queue = slices.DeleteFunc(z.queue, func(w *waitingOrder) bool { return w.order.ID == id })
	z.mu.Unlock()
	if !ok { // the answer was on its way
		select {
		case f := <-answer:
			f.abandon()
		default:
		}
	}
}

// abandon ends a child that nobody waits for any more. It would not end by
// itself: its program does, but not its sleeping first process.
func (f *forked) abandon() {
	if f.pidfd == nil {
		return
	}
	if proc, err := pidfd.FromFile(f.pidfd); err == nil {
		_ = proc.Kill() // whoever waits for its cgroup to be empty sees the end
		_ = proc.Close()
	}
}

// receive hands answers to those who wait, until the zygote is gone.
func (z *zygote) receive() {
	for {
		message, files, err := z.control.Receive()
		if err != nil {
			break
		}
		answers, err := readAnswers(message, files)
		if err != nil {
			closeFiles(files)
			break
		}
		for i := range answers {
			if !z.answer(answers[i]) {
				answers[i].abandon()
			}
		}
		z.mu.Lock()
		z.busy = false
		z.mu.Unlock()
		z.sendOrders()
	}
	z.proc.Kill()
	z.mu.Lock()
	defer z.mu.Unlock()
	z.gone = true
	for id, answer := range z.waiting {
		close(answer)
		delete(z.waiting, id)
	}
}

// readAnswers gives each sandbox that was made its descriptor: there is one for
// each, in order.
func readAnswers(message []byte, files []*os.File) ([]forked, error) {
	var answers []forked
	if err := json.Unmarshal(message, &answers); err != nil {
		return nil, err
	}
	left := files
	for i := range answers {
		if answers[i].Error != nil {
			continue
		}
		if len(left) == 0 {
			return nil, errors.New("a sandbox without its descriptor")
		}
		answers[i].pidfd, left = left[0], left[1:]
	}
	if len(left) > 0 {
		return nil, errors.New("more descriptors than sandboxes")
	}
	return answers, nil
}

// answer tells the one who waits for it; false when nobody does.
func (z *zygote) answer(f forked) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	waiting, ok := z.waiting[f.ID]
	if ok {
		delete(z.waiting, f.ID)
		waiting <- f
	}
	return ok
}

// pace takes the zygote's low priority away while runs wait for it: a machine busy
// with other things would never come to it.
func (z *zygote) pace(hurry bool) {
	if z.hurried.Swap(hurry) == hurry {
		return
	}
	nice := readyNice
	if hurry {
		nice = 0
	}
	_ = z.proc.GiveWay(nice) // it is gone, or keeps its share
}

// alive tells whether it can be sent orders: its process lives, and nobody has
// found its socket closed.
func (z *zygote) alive() bool {
	select {
	case <-z.proc.Done():
		return false
	default:
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	return !z.gone
}

func (z *zygote) goneError() error {
	return sandbox.Errorf(sandbox.KindUnavailable, "fork sandbox", "zygote", "it has ended%s", z.stderr.suffix())
}

// kill ends the zygote and with it every sandbox forked from it.
func (z *zygote) kill() {
	z.proc.Kill()
	<-z.proc.Done()
	_ = z.control.Close()
	z.stderr.wait()
}

// tail keeps the last bytes of a process's standard error, for messages.
type tail struct {
	mu   sync.Mutex
	data []byte
	done chan struct{}
}

const tailBytes = 2 << 10

func newTail(r *os.File) *tail {
	t := &tail{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer r.Close()
		_, _ = io.Copy(t, r)
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-tailBytes):]
	return len(p), nil
}

func (t *tail) wait() { <-t.done }

func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := bytes.TrimSpace(t.data); len(text) > 0 {
		return ": " + string(text)
	}
	return ""
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
