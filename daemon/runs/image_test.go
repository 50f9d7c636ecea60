package runs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

// shelf holds one stored image and the machine's own, and counts.
type shelf struct {
	mu    sync.Mutex
	held  int
	moved bool // the name stands for another image now
}

const (
	hostDigest  = "sha256:aa"
	firstDigest = "sha256:bb"
	otherDigest = "sha256:cc"
)

func (s *shelf) Hold(reference string) (sandbox.Image, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	image := sandbox.Image{Digest: firstDigest, Names: []string{"stored"}, PythonVersion: "3.12.1", Interpreter: "/usr/bin/python3.12"}
	switch {
	case reference == "":
		return sandbox.Image{}, func() {}, nil
	case reference == "host":
		image = sandbox.Image{Digest: hostDigest, Names: []string{"host"}, PythonVersion: "3.11.2", Interpreter: "/usr/bin/python3.11"}
	case s.moved:
		image.Digest = otherDigest
	}
	s.held++
	return image, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	}), nil
}

func (s *shelf) holds(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != want {
		t.Errorf("%d images are held, want %d", s.held, want)
	}
}

func imageSpec(text, image string) Order {
	return Order{Spec: &sandbox.Spec{Program: &text, Image: image}}
}

// withImages makes a manager whose engine notes what its plans say.
func withImages(t *testing.T, cfg Config, script fake.Config) (*Manager, *fake.Engine, *shelf, *[]string) {
	t.Helper()
	images := &shelf{}
	var mu sync.Mutex
	var planned []string
	script.CreateError = func(_ int, p isolation.Plan) error {
		mu.Lock()
		defer mu.Unlock()
		planned = append(planned, p.Image)
		return nil
	}
	cfg.Images = images
	m, e := manage(t, cfg, script)
	return m, e, images, &planned
}

// TestImage_IsFixedAtAdmission: what a name stands for may change while a run waits.
func TestImage_IsFixedAtAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent = 1
		m, e, images, planned := withImages(t, cfg, fake.Config{})
		go func() {
			_, _ = m.Run(t.Context(), tenants.Caller{}, script("#fake hang", sandbox.Limits{WallMillis: 1000}))
		}()
		synctest.Wait()
		result := make(chan sandbox.Result, 1)
		go func() {
			res, err := m.Run(t.Context(), tenants.Caller{}, imageSpec("", "stored"))
			if err != nil {
				t.Error(err)
			}
			result <- res
		}()
		synctest.Wait()
		images.holds(t, 1)
		images.mu.Lock()
		images.moved = true
		images.mu.Unlock()
		res := <-result
		if res.Image != "stored "+firstDigest || res.Interpreter != "Python 3.12.1 at /usr/bin/python3.12" {
			t.Errorf("image %q, interpreter %q", res.Image, res.Interpreter)
		}
		rest(t, m, e)
		images.holds(t, 0)
		if len(*planned) != 2 || (*planned)[0] != "" || (*planned)[1] != firstDigest {
			t.Errorf("plans name %q", *planned)
		}
	})
}

// TestImage_IsHeldUntilTheSandboxIsGone, which is after the reply.
func TestImage_IsHeldUntilTheSandboxIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, images, _ := withImages(t, testConfig(), fake.Config{DestroyDelay: 3 * time.Second})
		if _, err := m.Run(t.Context(), tenants.Caller{}, imageSpec("", "stored")); err != nil {
			t.Error(err)
		}
		images.holds(t, 1)
		rest(t, m, e)
		images.holds(t, 0)
	})
}

// TestImage_IsLetGoOfWhereNothingRuns.
func TestImage_IsLetGoOfWhereNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxConcurrent, cfg.QueueLength = 1, 0
		m, e, images, _ := withImages(t, cfg, fake.Config{})
		order := imageSpec("", "stored")
		order.Fault = &TextFault{Field: "program", First: 0xd800, End: 1}
		if res, err := m.Run(t.Context(), tenants.Caller{}, order); err != nil || res.Verdict != sandbox.Raised || res.Image != "stored "+firstDigest {
			t.Errorf("fault: %s of %q, %v", res.Verdict, res.Image, err)
		}
		refused := imageSpec("", "stored")
		refused.Spec.Engine = "warp"
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		go func() {
			_, _ = m.Run(t.Context(), tenants.Caller{}, script("#fake hang", sandbox.Limits{WallMillis: 1000}))
		}()
		synctest.Wait()
		for title, try := range map[string]func() error{
			"no such engine": func() error { _, err := m.Run(t.Context(), tenants.Caller{}, refused); return err },
			"caller is gone": func() error { _, err := m.Run(gone, tenants.Caller{}, imageSpec("", "stored")); return err },
			"queue is full":  func() error { _, err := m.Run(t.Context(), tenants.Caller{}, imageSpec("", "stored")); return err },
		} {
			if err := try(); err == nil {
				t.Errorf("%s: it ran", title)
			}
		}
		rest(t, m, e)
		images.holds(t, 0)
		if err := m.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := m.Run(t.Context(), tenants.Caller{}, imageSpec("", "stored")); sandbox.KindOf(err) != sandbox.KindUnavailable {
			t.Errorf("while draining: %v", err)
		}
		images.holds(t, 0)
	})
}

// TestImage_NeedsAnEngineThatTakesIt: auto passes over one that cannot, and one
// that was named is refused.
func TestImage_NeedsAnEngineThatTakesIt(t *testing.T) {
	own := func(s *isolation.Support) { s.Images = false }
	for _, c := range []struct {
		title         string
		engine, image string
		want          string // engine
		plan          string
		kind          sandbox.Kind
	}{
		{"auto, stored", "", "stored", "b", firstDigest, ""},
		{"auto, none", "", "", "a", "", ""},
		{"auto, host", "", "host", "a", "", ""},
		{"named, stored", "a", "stored", "", "", sandbox.KindInvalid},
		{"named, host", "a", "host", "a", "", ""},
		{"takes images, host", "b", "host", "b", hostDigest, ""},
	} {
		t.Run(c.title, func(t *testing.T) {
			cfg := testConfig()
			images := &shelf{}
			cfg.EngineOrder, cfg.Images = []string{"a", "b"}, images
			p := planner{cfg: cfg, engines: newEngineList([]Engine{probed(t, "a", own), probed(t, "b", nil)})}
			order := imageSpec("", c.image)
			order.Spec.Engine = c.engine
			made, err := p.plan(order.Spec)
			if c.kind != "" {
				if sandbox.KindOf(err) != c.kind {
					t.Errorf("got %v", err)
				}
				images.holds(t, 0)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if made.engine.Name() != c.want || made.image.reference(made.engine) != c.plan {
				t.Errorf("engine %s, image %q", made.engine.Name(), made.image.reference(made.engine))
			}
			made.image.release()
			images.holds(t, 0)
		})
	}
}

// TestChoose_AllowedEngines are the only ones that requests get.
func TestChoose_AllowedEngines(t *testing.T) {
	cfg := testConfig()
	cfg.EngineOrder, cfg.Allowed = []string{"a", "b"}, []string{"b"}
	p := planner{cfg: cfg, engines: newEngineList([]Engine{probed(t, "a", nil), probed(t, "b", nil)})}
	if e, _, err := p.choose("", nil, &held{}); err != nil || e.Name() != "b" {
		t.Errorf("auto: %v, %v", e, err)
	}
	if _, _, err := p.choose("a", nil, &held{}); sandbox.KindOf(err) != sandbox.KindDenied {
		t.Errorf("named: %v", err)
	}
	p.cfg.Allowed = []string{}
	if _, _, err := p.choose("", nil, &held{}); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("none: %v", err)
	}
}
