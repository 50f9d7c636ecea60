package config

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Config is the daemon's configuration.
type Config struct {
	StateDir  string    `toml:"state_dir"`
	Socket    Socket    `toml:"socket"`
	Log       Log       `toml:"log"`
	Limits    Limits    `toml:"limits"`
	Admission Admission `toml:"admission"`
	Engines   Engines   `toml:"engines"`
	Images    Images    `toml:"images"`
	Shutdown  Shutdown  `toml:"shutdown"`
	// Engine holds the engines' own sections by name.
	Engine map[string]map[string]any `toml:"engine"`
}

// Socket is where the API is served.
type Socket struct {
	Path  string `toml:"path"`
	Mode  string `toml:"mode"`  // octal
	Group string `toml:"group"` // given to the socket if the group exists
}

// Log is how the daemon logs.
type Log struct {
	Level  string `toml:"level"`  // debug, info, warn, error
	Format string `toml:"format"` // text, json
}

// Limits by their wire names; what is absent keeps its built-in value.
type Limits struct {
	Defaults map[string]int64 `toml:"defaults"`
	Ceilings map[string]int64 `toml:"ceilings"`
}

// Admission bounds what is live and what waits.
type Admission struct {
	MaxConcurrent int `toml:"max_concurrent"`
	QueueLength   int `toml:"queue_length"`
}

// Engines says which engines may be used and what they must hold.
type Engines struct {
	Default string   `toml:"default"`
	Order   []string `toml:"order"` // strongest first
	// Allowed unset allows every engine; set, requests may name these, and auto takes
	// no other.
	Allowed      *[]string `toml:"allowed,omitempty"`
	AllowProcess bool      `toml:"allow_process"`
	// RequireLayers unset is not the same as set to none: then each engine must
	// hold what it is made of, Landlock excepted.
	RequireLayers *[]sandbox.Layer `toml:"require_layers,omitempty"`
}

// Shutdown is how the daemon stops.
type Shutdown struct {
	DrainMillis int64 `toml:"drain_ms"` // for live runs to end by themselves
}

// The engines that configuration speaks of by name.
const (
	engineNative  = "native"
	engineProcess = "process"
)

// minConcurrent keeps small machines useful: runs wait more than they compute.
const minConcurrent = 8

// Default is the configuration of a daemon that is given none.
func Default() Config {
	run, state := defaultDirs()
	return Config{
		StateDir:  state,
		Socket:    Socket{Path: filepath.Join(run, "sandboxd.sock"), Mode: "0660", Group: "sandboxd"},
		Log:       Log{Level: "info", Format: "text"},
		Admission: Admission{MaxConcurrent: max(minConcurrent, 2*runtime.NumCPU()), QueueLength: 256},
		Engines:   Engines{Default: runs.Auto, Order: []string{engineNative, engineProcess}},
		Images:    defaultImages(),
		Shutdown:  Shutdown{DrainMillis: 30_000},
	}
}

// defaultDirs are the system's for root, the user's own for anybody else.
func defaultDirs() (run, state string) {
	if os.Geteuid() == 0 {
		return "/run/sandboxd", "/var/lib/sandboxd"
	}
	run = os.Getenv("XDG_RUNTIME_DIR")
	if run == "" {
		run = os.TempDir()
	}
	state = os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = run
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(run, "sandboxd"), filepath.Join(state, "sandboxd")
}

// DefaultLimits are the built-in defaults with the file's on top.
func (c *Config) DefaultLimits() sandbox.Limits {
	l := sandbox.DefaultLimits()
	overlay(&l, c.Limits.Defaults)
	return l
}

// Ceilings are the built-in ceilings with the file's on top.
func (c *Config) Ceilings() sandbox.Limits {
	l := sandbox.DefaultCeilings()
	overlay(&l, c.Limits.Ceilings)
	return l
}

func overlay(l *sandbox.Limits, by map[string]int64) {
	for _, f := range l.Fields() {
		if v, ok := by[f.Name]; ok {
			*f.Value = v
		}
	}
}

// Runs is the part that daemon/runs obeys.
func (c *Config) Runs() runs.Config {
	r := runs.Config{
		MaxConcurrent: c.Admission.MaxConcurrent,
		QueueLength:   c.Admission.QueueLength,
		Defaults:      c.DefaultLimits(),
		Ceilings:      c.Ceilings(),
		DefaultEngine: c.Engines.Default,
		EngineOrder:   c.Engines.Order,
		Refused:       map[string]string{},
		Timing:        runs.DefaultTiming(),
	}
	if own := c.Engines.RequireLayers; own != nil {
		r.Require = append([]sandbox.Layer{}, *own...)
	} else {
		r.Require = NativeLayers()
		r.RequireByEngine = map[string][]sandbox.Layer{engineProcess: ProcessLayers()}
	}
	if allowed := c.Engines.Allowed; allowed != nil {
		r.Allowed = append([]string{}, *allowed...)
	}
	if !c.Engines.AllowProcess {
		r.Refused[engineProcess] = "set allow_process = true in the section engines of the configuration"
	}
	return r
}

// Drain is how long shutdown waits for live runs.
func (c *Config) Drain() time.Duration {
	return time.Duration(c.Shutdown.DrainMillis) * time.Millisecond
}

// NativeLayers is what is required unless configuration says otherwise: every
// layer of the engine native, Landlock excepted, because kernels lack it.
func NativeLayers() []sandbox.Layer {
	var layers []sandbox.Layer
	for _, l := range sandbox.Layers() {
		if l != sandbox.LayerLandlock {
			layers = append(layers, l)
		}
	}
	return layers
}

// ProcessLayers is what the engine process is made of and must hold once
// configuration allows it at all.
func ProcessLayers() []sandbox.Layer {
	return []sandbox.Layer{
		sandbox.LayerProcessGroup, sandbox.LayerCleanEnv, sandbox.LayerScratch, sandbox.LayerRlimits,
		sandbox.LayerNoNewPrivs, sandbox.LayerNotDumpable, sandbox.LayerSeccomp,
	}
}
