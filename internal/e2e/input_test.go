package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestInput_BadIsRefusedWithItsField sends what no run may come of over the real
// socket.
func TestInput_BadIsRefusedWithItsField(t *testing.T) {
	testenv.Root(t)
	d := newPlace(t, "").start(t)
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}}
	defer web.CloseIdleConnections()
	for name, c := range map[string]struct{ body, field string }{
		"not JSON":                   {`{"solution":`, "body"},
		"an array":                   {`[]`, "body"},
		"nothing to run":             {`{}`, "solution"},
		"unknown field":              {`{"solution":"","tests":"","colour":1}`, "colour"},
		"wrong type":                 {`{"solution":"","tests":7}`, "tests"},
		"wrong type of a limit":      {`{"solution":"","tests":"","limits":{"cpu_ms":"1"}}`, "cpu_ms"},
		"fraction as a limit":        {`{"solution":"","tests":"","limits":{"cpu_ms":1.5}}`, "cpu_ms"},
		"negative limit":             {`{"solution":"","tests":"","limits":{"memory_bytes":-1}}`, "memory_bytes"},
		"limit over its ceiling":     {`{"solution":"","tests":"","limits":{"wall_ms":86400000}}`, "wall_ms"},
		"unknown limit":              {`{"solution":"","tests":"","limits":{"joy_ms":1}}`, "joy_ms"},
		"lone surrogate in a name":   {`{"solution":"","tests":"","image":"a\ud800b"}`, "image"},
		"unknown engine":             {`{"solution":"","tests":"","engine":"steam"}`, "engine"},
		"engine that is not allowed": {`{"solution":"","tests":"","engine":"process"}`, "engine"},
		"split before it exists":     {`{"solution":"","tests":"","integrity":"split"}`, "integrity"},
		"two modes":                  {`{"solution":"","tests":"","program":""}`, "program"},
		"file outside":               {`{"program":"","files":[{"path":"../x","content":""}]}`, "files"},
		"unknown layer":              {`{"solution":"","tests":"","require_layers":["moat"]}`, "require_layers"},
		"20 MiB":                     {`{"solution":"` + strings.Repeat("x", 20<<20) + `","tests":""}`, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandboxd/v1/runs", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var problem struct {
				Status int    `json:"status"`
				Code   string `json:"code"`
				Detail string `json:"detail"`
				Errors []struct {
					Location string `json:"location"`
					Message  string `json:"message"`
				} `json:"errors"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
				t.Fatal(err)
			}
			said, err := json.Marshal(problem)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode/100 != 4 || problem.Status != resp.StatusCode || problem.Code == "" {
				t.Errorf("HTTP %d, %s", resp.StatusCode, said)
			}
			if kind := resp.Header.Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("Content-Type %s", kind)
			}
			if !strings.Contains(string(said), c.field) {
				t.Errorf("%s does not name %s", said, c.field)
			}
		})
	}
	if live, err := d.client.ListRuns(t.Context()); err != nil || len(live) > 0 {
		t.Errorf("live after refusals: %v, %v", live, err)
	}
	if strings.Contains(d.log.String(), "run_id=run_") {
		t.Error("a refused request has started a run")
	}
}

// TestClient_LeavingCancelsTheRun drops the connection of a run that sleeps.
func TestClient_LeavingCancelsTheRun(t *testing.T) {
	testenv.Cgroup(t)
	d := newPlace(t, "[engine.native]\nready = 0\n").start(t) // a pool is filled meanwhile
	d.run(t, solved())
	before := len(family(t, d.cmd.Process.Pid))
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = d.client.Run(ctx, programSpec("import time\ntime.sleep(14)\n"))
	}()
	d.waitLive(t, 1)
	leave()
	<-gone
	begin := time.Now()
	eventually(t, "the run of a client that left", func() []string {
		live, err := d.client.ListRuns(t.Context())
		if err != nil {
			return []string{err.Error()}
		}
		if n := len(family(t, d.cmd.Process.Pid)); len(live) > 0 || n > before {
			return []string{"its processes"}
		}
		return nil
	})
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the run outlived its client by %s", took)
	}
}

// TestLayer_MissingRefusesTheRun asks for a layer that the allowed weak engine
// is not made of: it must be refused by name and never run weaker than asked.
func TestLayer_MissingRefusesTheRun(t *testing.T) {
	testenv.Root(t)
	d := newPlace(t, "[engines]\nallow_process = true\n").start(t)
	spec := solved()
	spec.Engine, spec.RequireLayers = "process", []sandbox.Layer{sandbox.LayerNetNS}
	_, err := d.client.Run(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), string(sandbox.LayerNetNS)) {
		t.Errorf("a run without a required layer answered %v", err)
	}
}
