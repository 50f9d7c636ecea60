package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

func decode(t *testing.T, text string) Config {
	t.Helper()
	c := Default()
	if err := c.Decode([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefault_IsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	r := c.Runs()
	if slices.Contains(r.Require, sandbox.LayerLandlock) || len(r.Require) != len(sandbox.Layers())-1 {
		t.Errorf("required: %v", r.Require)
	}
	if r.Refused["process"] == "" {
		t.Error("process is allowed by default")
	}
}

func TestDecode_LaysTheFileOnTop(t *testing.T) {
	c := decode(t, `
state_dir = "/tmp/state"
[socket]
path = "/tmp/s"
[limits.defaults]
wall_ms = 2000
[limits.ceilings]
memory_bytes = 536870912
[engines]
allow_process = true
[engine.native]
uid_base = 2000000
`)
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	limits, ceilings := c.DefaultLimits(), c.Ceilings()
	if limits.WallMillis != 2000 || limits.CPUMillis != sandbox.DefaultLimits().CPUMillis || ceilings.MemoryBytes != 512<<20 {
		t.Errorf("%+v %+v", limits, ceilings)
	}
	if c.Socket.Mode != "0660" || c.Admission.QueueLength != 256 {
		t.Errorf("defaults were lost: %+v", c)
	}
	if !reflect.DeepEqual(c.Engine["native"], map[string]any{"uid_base": int64(2_000_000)}) {
		t.Errorf("engine section %v", c.Engine)
	}
	r := c.Runs()
	if len(r.Refused) != 0 || !slices.Contains(r.RequireByEngine["process"], sandbox.LayerSeccomp) {
		t.Errorf("%+v", r)
	}
}

// TestDecode_RequireLayers: none given is not the same as given as none.
func TestDecode_RequireLayers(t *testing.T) {
	none := decode(t, "[engines]\nrequire_layers = []\n")
	if r := none.Runs(); r.Require == nil || len(r.Require) != 0 || r.RequireByEngine != nil {
		t.Errorf("given as none: %v %v", r.Require, r.RequireByEngine)
	}
	some := decode(t, "[engines]\nallow_process = true\nrequire_layers = [\"net_ns\"]\n")
	if r := some.Runs(); !slices.Equal(r.Require, []sandbox.Layer{sandbox.LayerNetNS}) || r.RequireByEngine != nil {
		t.Errorf("given: %v %v", r.Require, r.RequireByEngine)
	}
}

func TestDecode_NamesUnknownKeys(t *testing.T) {
	c := Default()
	err := c.Decode([]byte("colour = 1\n[engines]\nallow_all = true\n[socket]\nmodes = \"1\"\n"))
	for _, want := range []string{"line 1: unknown key colour", "line 3: unknown key engines.allow_all", "line 5: unknown key socket.modes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not tell %q", err, want)
		}
	}
}

func TestValidate_JoinsAllProblems(t *testing.T) {
	c := decode(t, `
state_dir = "state"
[socket]
path = "s"
mode = "0666"
[log]
level = "loud"
format = "xml"
[admission]
max_concurrent = 0
queue_length = -1
[shutdown]
drain_ms = -1
[engines]
default = ""
require_layers = ["moat"]
[limits.defaults]
wall_ms = 700000
memory_bytes = 5
walls = 1
[limits.ceilings]
cpu_ms = -1
doors = 1
`)
	err := c.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, key := range []string{
		"state_dir", "socket.path", "socket.mode", "log.level", "log.format", "admission.max_concurrent", "admission.queue_length",
		"shutdown.drain_ms", "engines.default", "engines.require_layers", "limits.defaults.wall_ms", "limits.defaults.memory_bytes",
		"limits.defaults.walls", "limits.ceilings.cpu_ms", "limits.ceilings.doors",
	} {
		if !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not told: %v", key, err)
		}
	}
}

// TestEncode_ComesBack: what config show prints is the configuration.
func TestEncode_ComesBack(t *testing.T) {
	for _, text := range []string{"", "[engines]\nrequire_layers = []\n", "[engine.native]\na = 1\n[limits.defaults]\nwall_ms = 5\n", "[images]\nallowed = []\nmanager_uids = [5]\n"} {
		c := decode(t, text)
		shown, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, shown, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
		if err := again.Validate(); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(c.Runs(), again.Runs()) || c.Socket != again.Socket || !reflect.DeepEqual(c.Images, again.Images) || !reflect.DeepEqual(c.Engine, again.Engine) {
			t.Errorf("%q came back as\n%s", text, shown)
		}
	}
}

func TestDecode_Images(t *testing.T) {
	absent := decode(t, "")
	if c := absent.Catalog(); c.Allowed != nil || c.Default != "" || c.ImportTime != 30*time.Minute || !slices.Contains(c.ManagerUIDs, uint32(os.Geteuid())) {
		t.Errorf("%+v", c)
	}
	if r := absent.Runs(); r.Allowed != nil {
		t.Errorf("engines: %v", r.Allowed)
	}
	none := decode(t, "[images]\nallowed = []\n[engines]\nallowed = []\n")
	if c, r := none.Catalog(), none.Runs(); c.Allowed == nil || len(c.Allowed) > 0 || r.Allowed == nil || len(r.Allowed) > 0 {
		t.Errorf("given as none: %v, %v", c.Allowed, r.Allowed)
	}
	some := decode(t, `
state_dir = "/tmp/state"
[images]
default = "base"
allowed = ["team/*"]
manager_uids = [1000]
manager_gids = [50]
unused_hours = 2
store_bytes = 5
import_ms = 1000
[images.docker]
host = "unix:///x"
`)
	if err := some.Validate(); err != nil {
		t.Error(err)
	}
	c := some.Catalog()
	if c.Default != "base" || !slices.Equal(c.Allowed, []string{"team/*"}) || !slices.Contains(c.ManagerUIDs, 1000) || !slices.Equal(c.ManagerGIDs, []uint32{50}) ||
		c.Unused != 2*time.Hour || c.Bytes != 5 || c.ImportTime != time.Second || some.ImagesDir() != "/tmp/state/images" || some.Images.Docker.Host != "unix:///x" {
		t.Errorf("%+v", c)
	}
}

func TestValidate_Images(t *testing.T) {
	c := decode(t, `
[engines]
default = "native"
allowed = ["crun"]
[images]
dir = "images"
allowed = ["a[", ""]
import_bytes = 0
import_entries = -1
import_ms = 100000000
store_bytes = -1
unused_hours = -1
insecure_registries = ["http://x"]
`)
	err := c.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, key := range []string{
		"engines.default", "images.dir", "images.allowed", "images.import_bytes", "images.import_entries", "images.import_ms",
		"images.store_bytes", "images.unused_hours", "images.insecure_registries",
	} {
		if !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not told: %v", key, err)
		}
	}
}
