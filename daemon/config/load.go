package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/sandbox"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Load gives the defaults with the file's settings on top. An empty path is no
// file. The result is not validated yet: flags may still change it.
func Load(path string) (Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("open configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	if len(text) > maxFile {
		return c, fmt.Errorf("read configuration: %s is larger than %d bytes", path, maxFile)
	}
	if err := c.Decode(text); err != nil {
		return c, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return c, nil
}

// Decode puts the settings of text on top of c.
func (c *Config) Decode(text []byte) error {
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(c)
	var unknown *toml.StrictMissingError
	if !errors.As(err, &unknown) {
		return err
	}
	var errs []error
	for _, e := range unknown.Errors {
		row, _ := e.Position()
		errs = append(errs, fmt.Errorf("line %d: unknown key %s", row, strings.Join(e.Key(), ".")))
	}
	return errors.Join(errs...)
}

// Encode gives c as TOML, with every limit as it applies.
func (c *Config) Encode() ([]byte, error) {
	shown := *c
	shown.Limits = Limits{Defaults: byName(c.DefaultLimits()), Ceilings: byName(c.Ceilings())}
	return toml.Marshal(shown)
}

func byName(l sandbox.Limits) map[string]int64 {
	named := map[string]int64{}
	for _, f := range l.Fields() {
		named[f.Name] = *f.Value
	}
	return named
}

// Validate joins everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	const longest = 107 // bytes of sun_path but for its end (unix(7))
	if len(c.Socket.Path) > longest {
		bad("socket.path", "%q has more than %d bytes: no client could name it", c.Socket.Path, longest)
	}
	if !filepath.IsAbs(c.Socket.Path) {
		bad("socket.path", "%q is not an absolute path", c.Socket.Path)
	}
	if _, err := c.Socket.Permissions(); err != nil {
		bad("socket.mode", "%v", err)
	}
	if !filepath.IsAbs(c.StateDir) {
		bad("state_dir", "%q is not an absolute path", c.StateDir)
	}
	if _, err := c.Log.SlogLevel(); err != nil {
		bad("log.level", "%q is none of debug, info, warn, error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format", "%q is neither text nor json", c.Log.Format)
	}
	if c.Admission.MaxConcurrent < 1 {
		bad("admission.max_concurrent", "%d is not at least 1", c.Admission.MaxConcurrent)
	}
	if c.Admission.QueueLength < 0 {
		bad("admission.queue_length", "%d is negative", c.Admission.QueueLength)
	}
	if c.Shutdown.DrainMillis < 0 {
		bad("shutdown.drain_ms", "%d is negative", c.Shutdown.DrainMillis)
	}
	if c.Engines.Default == "" {
		bad("engines.default", "is empty")
	}
	if allowed := c.Engines.Allowed; allowed != nil && c.Engines.Default != runs.Auto && !slices.Contains(*allowed, c.Engines.Default) {
		bad("engines.default", "%q is not among engines.allowed", c.Engines.Default)
	}
	c.Images.check(bad)
	if own := c.Engines.RequireLayers; own != nil {
		for _, l := range *own {
			if !sandbox.KnownLayer(l) {
				bad("engines.require_layers", "no layer is called %q", l)
			}
		}
	}
	errs = append(errs, c.checkLimits()...)
	return errors.Join(errs...)
}

// checkLimits wants every default above its floor and at most its ceiling.
func (c *Config) checkLimits() []error {
	var errs []error
	var all sandbox.Limits
	var names []string
	for _, f := range all.Fields() {
		names = append(names, f.Name)
	}
	for section, values := range map[string]map[string]int64{"defaults": c.Limits.Defaults, "ceilings": c.Limits.Ceilings} {
		for name := range values {
			if !slices.Contains(names, name) {
				errs = append(errs, fmt.Errorf("limits.%s.%s: unknown key", section, name))
			}
		}
	}
	defaults, ceilings := c.DefaultLimits(), c.Ceilings()
	def, ceil := defaults.Fields(), ceilings.Fields()
	for i, f := range def {
		value, limit := *f.Value, *ceil[i].Value
		off := value == 0 && (f.Name == "processes" || f.Name == "output_stop_bytes")
		switch {
		case value < f.Floor && !off:
			errs = append(errs, fmt.Errorf("limits.defaults.%s: %d is below the least useful value %d", f.Name, value, f.Floor))
		case limit < 0:
			errs = append(errs, fmt.Errorf("limits.ceilings.%s: %d is negative", f.Name, limit))
		case limit > 0 && value > limit:
			errs = append(errs, fmt.Errorf("limits.defaults.%s: %d is over the ceiling %d", f.Name, value, limit))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// Permissions gives the socket's mode.
func (s Socket) Permissions() (os.FileMode, error) {
	n, err := strconv.ParseUint(s.Mode, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("%q is no octal file mode", s.Mode)
	}
	if n&0o007 != 0 {
		return 0, fmt.Errorf("%q lets every user of the machine in; only the owner and a group may be", s.Mode)
	}
	return os.FileMode(n), nil
}

// SlogLevel gives the level as slog knows it.
func (l Log) SlogLevel() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(l.Level))
	return level, err
}
