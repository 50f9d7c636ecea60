package daemon_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/daemontest"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

func program(text string) sandbox.Spec { return sandbox.Spec{Program: &text} }

// lateEngine is not usable when it is probed first.
type lateEngine struct {
	*fake.Engine
	probes atomic.Int32
}

func (e *lateEngine) Probe(ctx context.Context) (isolation.Support, error) {
	if e.probes.Add(1) == 1 {
		return isolation.Support{Reason: "what it needs is not started"}, nil
	}
	return e.Engine.Probe(ctx)
}

// TestServe_ProbesAgain: what an engine needs may come after the daemon.
func TestServe_ProbesAgain(t *testing.T) {
	e := &lateEngine{Engine: fake.New(fake.Config{})}
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{e}})
	c := client(t, d)
	if _, err := c.Run(t.Context(), program("#fake print hi")); problemCode(err) != "unavailable" || !strings.Contains(err.Error(), "not started") {
		t.Errorf("before: %v", err)
	}
	waitFor(t, "the engine is probed again", func() bool {
		res, err := c.Run(t.Context(), program("#fake print hi"))
		return err == nil && res.Stdout == "hi\n"
	})
	if n := e.probes.Load(); n != 2 {
		t.Errorf("%d probes", n)
	}
}

func TestServe_StopsInOrder(t *testing.T) {
	engine := fake.New(fake.Config{})
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{engine}})
	c := client(t, d)
	if reaped, _ := engine.Calls(); !reaped {
		t.Error("the engine was not reaped before serving")
	}
	type answer struct {
		res sandbox.Result
		err error
	}
	got := make(chan answer, 1)
	go func() {
		spec := program("#fake print hi\n#fake hang")
		spec.Limits.WallMillis = 300
		res, err := c.Run(t.Context(), spec)
		got <- answer{res, err}
	}()
	waitFor(t, "the run is live", func() bool { _, live := engine.Counts(); return live == 1 })
	d.Terminate()
	a := <-got
	if a.err != nil || a.res.Verdict != sandbox.WallLimit || a.res.Stdout != "hi\n" {
		t.Errorf("the live run came to %s, %v", a.res.Verdict, a.err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if _, closed := engine.Calls(); !closed {
		t.Error("the engine was not closed")
	}
	if _, live := engine.Counts(); live != 0 {
		t.Errorf("%d sandboxes are left", live)
	}
	if err := c.Health(t.Context()); !errors.Is(err, apiclient.ErrNoDaemon) {
		t.Errorf("after the stop: %v", err)
	}
}

func TestServe_CancelsAtTheDrainDeadline(t *testing.T) {
	engine := fake.New(fake.Config{})
	d := daemontest.Start(t, daemontest.Options{
		Engines:   []isolation.Engine{engine},
		Configure: func(c *config.Config) { c.Shutdown.DrainMillis = 50 },
	})
	c := client(t, d)
	got := make(chan error, 1)
	go func() {
		res, err := c.Run(t.Context(), program("#fake deaf"))
		if err == nil && res.Verdict != sandbox.Canceled {
			err = errors.New(string(res.Verdict))
		}
		got <- err
	}()
	waitFor(t, "the run is live", func() bool { _, live := engine.Counts(); return live == 1 })
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the run's answer: %v", err)
	}
}

func TestServe_OwnershipOverTheSocket(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted(), Caller: tenants.Caller{UID: 1001}})
	owner := client(t, d)
	got := make(chan sandbox.Result, 1)
	go func() {
		res, _ := owner.Run(t.Context(), program("#fake deaf"))
		got <- res
	}()
	waitFor(t, "the run is running", func() bool {
		l, err := owner.ListRuns(t.Context())
		return err == nil && len(l) == 1 && l[0].State == "running" && l[0].Owner == 1001
	})
	list, err := owner.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.BeCaller(tenants.Caller{UID: 1002})
	other := client(t, d)
	if l, err := other.ListRuns(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("another user sees %v, %v", l, err)
	}
	var p *apiclient.Problem
	if err := other.Cancel(t.Context(), list[0].ID); !errors.As(err, &p) || p.Code != sandbox.KindNotFound {
		t.Errorf("another user's cancel: %v", err)
	}
	d.BeCaller(tenants.Caller{UID: 0})
	root := client(t, d)
	if err := root.Cancel(t.Context(), list[0].ID); err != nil {
		t.Errorf("root's cancel: %v", err)
	}
	if res := <-got; res.Verdict != sandbox.Canceled || res.Owner != 1001 {
		t.Errorf("%s of %d", res.Verdict, res.Owner)
	}
}

func TestServe_NoCredentialsNoConnection(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted(), NoCaller: true})
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))
	if n, err := conn.Read(make([]byte, 64)); err == nil {
		t.Errorf("answered with %d bytes", n)
	}
}

func TestServe_KeepsConnectionsAndManyRuns(t *testing.T) {
	engine := fake.New(fake.Config{})
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{engine}})
	c := client(t, d)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				res, err := c.Run(t.Context(), program("#fake print x"))
				if err != nil || res.Verdict != sandbox.Passed || res.Stdout != "x\n" {
					t.Errorf("%s %q, %v", res.Verdict, res.Stdout, err)
					return
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, "all are destroyed", func() bool { made, live := engine.Counts(); return made == 320 && live == 0 })
}

func TestServe_AnswersAreValidJSON(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{fake.New(fake.Config{Play: hostile})}})
	resp, text := post(t, d, "/v1/runs", nil, []byte(`{"tests":""}`))
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "\ufffd") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

func TestInfoAndDoctor(t *testing.T) {
	support := fake.Without(fake.HoldsAll("fake"), sandbox.LayerSeccomp, "ENOSYS", "build the kernel with it")
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{
		fake.New(fake.Config{Support: &support}), fake.New(fake.Config{Name: "process", ProbeError: errors.New("no python3")}),
	}})
	c := client(t, d)
	doctor, err := c.Doctor(t.Context())
	if err != nil || doctor.OK || !strings.Contains(doctor.Problem, "seccomp: ENOSYS (build the kernel with it)") || len(doctor.Engines) != 2 {
		t.Errorf("%+v, %v", doctor, err)
	}
	if e := doctor.Engines[1]; e.Usable || e.Allowed || !strings.Contains(e.Reason, "no python3") || !strings.Contains(e.Mend, "allow_process") {
		t.Errorf("process: %+v", e)
	}
	if e := doctor.Engines[0]; len(e.Missing) != 1 || !e.Requires(sandbox.LayerSeccomp) || e.Requires(sandbox.LayerLandlock) {
		t.Errorf("fake: %+v", e)
	}
	info, err := c.Info(t.Context())
	if err != nil || info.DefaultEngine != "" || info.Limits != sandbox.DefaultLimits() || info.Ceilings != sandbox.DefaultCeilings() || info.Version != "test" {
		t.Errorf("%+v, %v", info, err)
	}
	var p *apiclient.Problem
	if err := c.Health(t.Context()); !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable {
		t.Errorf("health: %v", err)
	}
	_, err = c.Run(t.Context(), program(""))
	if !errors.As(err, &p) || p.Code != sandbox.KindDenied || len(p.Errors) != 1 || p.Errors[0].Value != "seccomp" {
		t.Errorf("run: %+v", p)
	}
}

func TestMetrics_CountVerdictsAndErrors(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	post(t, d, "/v1/runs", nil, []byte(`{"program":""}`))
	post(t, d, "/v1/runs", nil, []byte(`{"program":"","engine":"warp"}`))
	resp, text := send(t, d, http.MethodGet, "/metrics", http.Header{}, nil)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HTTP %d", resp.StatusCode)
	}
	for _, line := range []string{
		`sandboxd_runs_total{verdict="passed"} 1`, `sandboxd_errors_total{kind="invalid"} 1`,
		`sandboxd_live_runs{state="running"} 0`, `sandboxd_waiting_runs 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}
