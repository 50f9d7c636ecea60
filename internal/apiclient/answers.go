package apiclient

import (
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Problem is an error answer of the daemon.
type Problem struct {
	Status     int           `json:"status"`
	Code       sandbox.Kind  `json:"code"`
	Detail     string        `json:"detail"`
	Mend       string        `json:"mend"`
	RunID      string        `json:"run_id"`
	Step       string        `json:"step"`
	Errors     []Detail      `json:"errors"`
	RetryAfter time.Duration `json:"-"` // when the daemon is full
}

// Detail is one thing that is wrong with a request.
type Detail struct {
	Message  string `json:"message"`
	Location string `json:"location"`
	Value    string `json:"value"`
}

func (p *Problem) Error() string {
	text := string(p.Code) + ": " + p.Detail
	if p.Step != "" {
		text += " (step " + p.Step + ")"
	}
	if p.RunID != "" {
		text += " (run " + p.RunID + ")"
	}
	if p.Mend != "" && !strings.Contains(text, p.Mend) {
		text += "; " + p.Mend
	}
	return text
}

// Run is one live run.
type Run struct {
	ID      string            `json:"id"`
	Owner   uint32            `json:"owner"`
	State   string            `json:"state"`
	Engine  string            `json:"engine"`
	AgeMS   int64             `json:"age_ms"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
}

// Info is what a daemon says of itself.
type Info struct {
	Version       string         `json:"version"`
	API           string         `json:"api"`
	Go            string         `json:"go"`
	OS            string         `json:"os"`
	Arch          string         `json:"arch"`
	UptimeSeconds float64        `json:"uptime_seconds"`
	Engines       []EngineInfo   `json:"engines"`
	DefaultEngine string         `json:"default_engine"`
	Image         string         `json:"image"`
	Interpreter   string         `json:"interpreter"`
	Limits        sandbox.Limits `json:"limits"`
	Ceilings      sandbox.Limits `json:"ceilings"`
}

// EngineInfo names one engine.
type EngineInfo struct {
	Name    string `json:"name"`
	Usable  bool   `json:"usable"`
	Allowed bool   `json:"allowed"`
	Default bool   `json:"default"`
}

// Doctor tells how each engine stands on the daemon's host.
type Doctor struct {
	OK      bool     `json:"ok"`
	Problem string   `json:"problem,omitempty"`
	Engines []Engine `json:"engines"`
}

// Engine is one engine's probe against what configuration requires.
type Engine struct {
	Engine      string                `json:"engine"`
	Usable      bool                  `json:"usable"`
	Reason      string                `json:"reason,omitempty"`
	Layers      []sandbox.LayerReport `json:"layers"`
	Limits      map[string]string     `json:"limits"`
	Interpreter string                `json:"interpreter,omitempty"`
	Image       string                `json:"image,omitempty"`
	Notes       []string              `json:"notes,omitempty"`
	Allowed     bool                  `json:"allowed"`
	Mend        string                `json:"mend,omitempty"`
	Default     bool                  `json:"default"`
	Required    []sandbox.Layer       `json:"required"`
	Missing     []sandbox.LayerReport `json:"missing"`
}

// Requires tells whether configuration demands the layer of this engine.
func (e *Engine) Requires(layer sandbox.Layer) bool {
	return slices.Contains(e.Required, layer)
}
