package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Info tells what this daemon is and what it offers.
type Info struct {
	Version       string         `json:"version"`
	API           string         `json:"api" doc:"Version of this interface"`
	Go            string         `json:"go"`
	OS            string         `json:"os"`
	Arch          string         `json:"arch"`
	UptimeSeconds float64        `json:"uptime_seconds"`
	Engines       []EngineInfo   `json:"engines"`
	DefaultEngine string         `json:"default_engine" doc:"What auto takes; empty when no engine may be used here"`
	Image         string         `json:"image" doc:"Name and digest of the default engine's default image"`
	Interpreter   string         `json:"interpreter" doc:"The Python of that image"`
	Limits        sandbox.Limits `json:"limits" doc:"Defaults of a run that names none"`
	Ceilings      sandbox.Limits `json:"ceilings" doc:"The largest limits that a run may name"`
}

// EngineInfo names one engine.
type EngineInfo struct {
	Name    string `json:"name"`
	Usable  bool   `json:"usable" doc:"The host lets it make sandboxes"`
	Allowed bool   `json:"allowed" doc:"The configuration lets it be used"`
	Default bool   `json:"default"`
}

type infoOutput struct{ Body Info }

func (a *API) info(context.Context, *struct{}) (*infoOutput, error) {
	i := Info{
		Version: a.cfg.Version, API: "v1", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		UptimeSeconds: time.Since(a.started).Seconds(), Engines: []EngineInfo{},
		Limits: a.cfg.Defaults, Ceilings: a.cfg.Ceilings,
	}
	for _, e := range a.runs.Engines() {
		i.Engines = append(i.Engines, EngineInfo{
			Name: e.Support.Engine, Usable: e.Support.Usable, Allowed: e.Allowed, Default: e.IsDefault,
		})
		if e.IsDefault {
			i.DefaultEngine, i.Image, i.Interpreter = e.Support.Engine, e.Support.Image, e.Support.Interpreter
		}
	}
	return &infoOutput{Body: i}, nil
}

// Doctor tells how each engine stands on this host.
type Doctor struct {
	OK      bool          `json:"ok" doc:"A run that names no engine can be served as the configuration requires"`
	Problem string        `json:"problem,omitempty" doc:"Why not"`
	Engines []Examination `json:"engines"`
}

// Examination is one engine's probe against what configuration requires.
type Examination struct {
	isolation.Support
	Allowed  bool                  `json:"allowed" doc:"The configuration lets it be used"`
	Mend     string                `json:"mend,omitempty" doc:"How to allow it"`
	Default  bool                  `json:"default"`
	Required []sandbox.Layer       `json:"required" doc:"Layers without which it runs nothing"`
	Missing  []sandbox.LayerReport `json:"missing" doc:"Those of them that do not hold"`
}

type doctorOutput struct{ Body Doctor }

func (a *API) doctor(context.Context, *struct{}) (*doctorOutput, error) {
	d := Doctor{OK: true, Engines: []Examination{}}
	if _, err := a.runs.Default(); err != nil {
		d.OK, d.Problem = false, err.Error()
	}
	for _, e := range a.runs.Engines() {
		d.Engines = append(d.Engines, examination(e))
	}
	return &doctorOutput{Body: d}, nil
}

func examination(e runs.EngineView) Examination {
	x := Examination{Support: e.Support, Allowed: e.Allowed, Mend: e.Mend, Default: e.IsDefault, Required: e.Require, Missing: e.Missing}
	if x.Required == nil {
		x.Required = []sandbox.Layer{}
	}
	if x.Missing == nil {
		x.Missing = []sandbox.LayerReport{}
	}
	return x
}

type healthOutput struct {
	Status int
	Body   struct {
		OK      bool   `json:"ok"`
		Problem string `json:"problem,omitempty"`
	}
}

func (a *API) health(context.Context, *struct{}) (*healthOutput, error) {
	out := &healthOutput{Status: http.StatusOK}
	out.Body.OK = true
	if err := a.runs.Ready(); err != nil {
		out.Status, out.Body.OK, out.Body.Problem = http.StatusServiceUnavailable, false, err.Error()
	}
	return out, nil
}
