package docker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/client"

	"github.com/sandboxd/sandboxd/internal/linux/rlimit"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// Engine makes sandboxes by one Docker Engine.
type Engine struct {
	cfg  Config
	api  *client.Client
	ids  *pool.IDs
	pool *pool.Pool[*liveSandbox]

	session string       // in the names of this object's containers
	number  atomic.Int64 // of containers, for their names
	live    atomic.Int64 // sandboxes that were handed out and not destroyed yet
	losses  atomic.Int64 // how often the Docker Engine was lost
	cpu     atomic.Int64 // µs, of the sandboxes that are gone

	mu      sync.Mutex
	host    *hostFacts
	support *isolation.Support
	images  map[string]*dockerImage // by digest; "" is the default
	owned   map[string]*ownership   // containers that exist or may, by name
	healing bool
	again   bool // something was abandoned while healing
	closed  bool

	blind bool // for tests: containers of this machine are taken for another's

	probing  lock
	imports  lock           // one image at a time
	discards sync.WaitGroup // of sandboxes that nobody will use
	healer   sync.WaitGroup
	ctx      context.Context // of the healer
	stop     context.CancelFunc
}

// ownership is what a container holds until it is gone.
type ownership struct {
	firstID   uint32
	abandoned bool // its removal failed; it is the healer's
}

// New makes the engine; it connects to nothing yet.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	api, err := connect(cfg.Host, cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("docker engine: %w", err)
	}
	e := &Engine{
		cfg: cfg, api: api, ids: pool.NewIDs(0, cfg.Sandboxes), session: newSession(),
		probing: newLock(), imports: newLock(),
		images: map[string]*dockerImage{}, owned: map[string]*ownership{},
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.pool, err = pool.New(pool.Config[*liveSandbox]{
		Engine: Name, Log: cfg.Log, Most: cfg.Ready, Least: leastReady, ShrinkAfter: shrinkAfter,
		Busy: e.busy, Fill: e.fill,
	})
	return e, err
}

// A container costs some hundred milliseconds of a processor and as many MiB as
// an interpreter, so few wait, and those of a burst wait longer than they took.
const (
	leastReady  = 2
	shrinkAfter = 30 * time.Second
)

// Name implements isolation.Engine.
func (e *Engine) Name() string { return Name }

// busy tells whether the processors have runs to serve.
func (e *Engine) busy() bool { return e.live.Load() >= int64(runtime.NumCPU()) }

func (e *Engine) fill(ctx context.Context) (*liveSandbox, error) {
	img, err := e.image(ctx, "")
	if err != nil {
		return nil, err
	}
	return e.make(ctx, img, sandbox.DefaultLimits())
}

// Create implements isolation.Engine.
func (e *Engine) Create(ctx context.Context, p isolation.Plan) (isolation.Sandbox, error) {
	support, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if !support.Usable {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "create sandbox", "engine "+Name, "%s", support.Reason)
	}
	if err := support.Refuse(p.Require); err != nil {
		return nil, err
	}
	img, err := e.image(ctx, p.Image)
	if err != nil {
		return nil, err
	}
	e.pool.Start()
	s, err := e.take(ctx, img, p.Limits)
	if err != nil {
		return nil, err
	}
	s.layers = support.Layers
	return s, nil
}

// take gives a sandbox the limits of one run: a ready one where its mounts and its
// filter are as the run needs them, else a new one.
func (e *Engine) take(ctx context.Context, img *dockerImage, l sandbox.Limits) (*liveSandbox, error) {
	began := time.Now()
	var s *liveSandbox
	if img.isDefault && e.fits(l) {
		if ready, ok := e.pool.Take(); ok {
			s = ready
			s.making = isolation.Making{Ready: true}
		}
	}
	pooled := time.Since(began)
	if s == nil {
		e.pool.Hurry()
		var err error
		if s, err = e.make(ctx, img, l); err != nil {
			return nil, err
		}
	}
	s.making.Pool = pooled
	e.live.Add(1)
	s.handedOut = true
	if err := s.limit(ctx, l); err != nil {
		s.Discard()
		return nil, fmt.Errorf("limit sandbox: %w", err)
	}
	return s, nil
}

// fits tells whether a sandbox that was made with default limits can get these.
// runsc changes none of a container that runs.
func (e *Engine) fits(l sandbox.Limits) bool {
	d := sandbox.DefaultLimits()
	if e.facts().ownKernel && (l.MemoryBytes != d.MemoryBytes || e.tasks(l) != e.tasks(d)) {
		return false
	}
	return isolation.ShapeOf(l) == isolation.ShapeOf(d)
}

// making are the limits under which a container is made. gVisor's cannot be changed
// later.
func (e *Engine) making(l sandbox.Limits) sandbox.Limits {
	if e.facts().ownKernel {
		return l
	}
	return isolation.RoomToMake(l)
}

// tasks is the pids limit.
func (e *Engine) tasks(l sandbox.Limits) int64 { return isolation.Tasks(l) + e.facts().leastTasks() }

// facts are what is known of the Engine; the zero value before that is asked.
func (e *Engine) facts() hostFacts {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil {
		return hostFacts{}
	}
	return *e.host
}

// confinement is what the supervisor applies to the program.
func (e *Engine) confinement(s *liveSandbox, l sandbox.Limits) (pyrunner.Confinement, error) {
	c, err := e.confine(s).Confinement(l)
	if err != nil {
		return c, err
	}
	out := streamOut
	c.Output = &out
	if s.ids.apart() {
		id := int(s.ids.program)
		c.UID, c.GID = &id, &id
		if c.Capabilities, err = isolation.CapabilityNumbers(isolation.Capabilities()); err != nil {
			return c, err
		}
	}
	c.Rlimits, err = e.rlimits(s, l)
	return c, err
}

func (e *Engine) confine(s *liveSandbox) isolation.Confine {
	return isolation.Confine{
		Arch: e.cfg.Arch, Landlock: s.landlock,
		ReadOnly:  []string{"/"},
		ReadWrite: []string{isolation.Workspace, "/tmp", "/dev"},
		Workspace: isolation.Workspace, SitePackages: append([]string{}, s.image.sitePackages...),
		Sockets: true, OwnIDs: s.ids.apart(), OwnUID: true, Kill: pyrunner.KillNamespace,
	}
}

func (e *Engine) rlimits(s *liveSandbox, l sandbox.Limits) ([]pyrunner.Rlimit, error) {
	limits, err := e.confine(s).Rlimits(l)
	if err != nil {
		return nil, err
	}
	if !s.ids.apart() { // the supervisor is one more process of the program's user
		for i := range limits {
			if number, ok := rlimit.Number("nproc"); ok && limits[i][0] == int64(number) {
				limits[i][1]++
				limits[i][2]++
			}
		}
	}
	if e.facts().ownKernel {
		limits = isolation.OwnKernelRlimits(limits, l.Threads)
	}
	return limits, nil
}

// Stats tells the engine's own figures.
func (e *Engine) Stats() isolation.Stats {
	p := e.pool.Stats()
	return isolation.Stats{Ready: p.Ready, Taken: p.Taken, Dry: p.Dry, CPUSeconds: float64(e.cpu.Load()) / 1e6}
}

// Close implements isolation.Engine.
func (e *Engine) Close(context.Context) error {
	e.pool.Close()
	e.discards.Wait()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.healer.Wait()
	return errors.Join(e.api.Close())
}
