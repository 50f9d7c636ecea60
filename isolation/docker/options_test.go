package docker

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

func testEngine(h hostFacts) *Engine {
	return &Engine{cfg: Config{UIDBase: 1_000_000, Owner: "0123456789abcdef"}, host: &h}
}

// TestOptions_OpenNothing: what an Engine could be asked for is not, whoever runs.
func TestOptions_OpenNothing(t *testing.T) {
	l := sandbox.DefaultLimits()
	for name, h := range map[string]hostFacts{"plain": {}, "mapped": {mapped: true}, "gVisor": {ownKernel: true}} {
		e := testEngine(h)
		img := &dockerImage{id: "sha256:1", interpreter: "/usr/bin/python3", env: []string{"SECRET=x", "PATH=/evil", "LANG=de"}}
		o, err := e.options(img, l, e.idsOf(8))
		if err != nil {
			t.Fatal(err)
		}
		c, r := o.config, o.host
		for what, wrong := range map[string]bool{
			"privileged": r.Privileged, "writable root": !r.ReadonlyRootfs, "network": r.NetworkMode != "none" || !c.NetworkDisabled,
			"binds": len(r.Binds)+len(r.Mounts)+len(r.VolumesFrom)+len(c.Volumes) > 0, "devices": len(r.Devices)+len(r.DeviceRequests) > 0,
			"host namespaces":    r.PidMode != "" || r.UTSMode != "" || r.UsernsMode != "" || r.IpcMode != "private" || r.CgroupnsMode != "private",
			"capabilities":       !slices.Equal(r.CapDrop, []string{"ALL"}) || h == hostFacts{} && len(r.CapAdd) > 0,
			"the host's root":    h == hostFacts{} && strings.HasPrefix(c.User, "0:"),
			"new privileges":     !slices.Contains(r.SecurityOpt, "no-new-privileges"),
			"no filter":          !slices.ContainsFunc(r.SecurityOpt, func(s string) bool { return strings.HasPrefix(s, "seccomp={") }),
			"swap":               r.Memory != l.MemoryBytes || r.MemorySwap != r.Memory,
			"no limit of tasks":  r.PidsLimit == nil || *r.PidsLimit < isolation.Tasks(l),
			"an image by name":   c.Image != "sha256:1",
			"a program besides":  *r.Init || c.Healthcheck == nil || !slices.Equal(c.Healthcheck.Test, []string{"NONE"}),
			"logs":               r.LogConfig.Type != "none",
			"another start":      r.RestartPolicy.Name != "no" || r.AutoRemove,
			"no owner":           c.Labels[ownerLabel] != e.cfg.Owner,
			"the image's secret": slices.Contains(c.Env, "SECRET=x") || !slices.Contains(c.Env, "SECRET"),
			"the image's path":   slices.Contains(c.Env, "PATH=/evil") || slices.Contains(c.Env, "PATH"),
		} {
			if wrong {
				t.Errorf("%s: %s", name, what)
			}
		}
		for place, words := range r.Tmpfs {
			if !strings.Contains(words, "size=") || !strings.Contains(words, "nr_inodes=") || !strings.Contains(words, "nosuid") {
				t.Errorf("%s: %s has %s", name, place, words)
			}
		}
	}
}

// TestIDs_AreEachSandboxesOwn, however users are counted, and never nobody's.
func TestIDs_AreEachSandboxesOwn(t *testing.T) {
	for name, h := range map[string]hostFacts{"plain": {}, "mapped": {mapped: true}, "gVisor": {ownKernel: true}} {
		e, seen := testEngine(h), map[uint32]bool{}
		for block := range uint32(mappedIDs / isolation.IDsPerSandbox) {
			id := e.idsOf(block * isolation.IDsPerSandbox).program
			if seen[id] || id == 0 || id == 65534 || h.mapped && id >= 65_536 {
				t.Fatalf("%s: block %d has %d", name, block, id)
			}
			seen[id] = true
		}
	}
}

func TestCheckHost(t *testing.T) {
	whole := TLS{CA: "/a", Cert: "/b", Key: "/c"}
	for _, c := range []struct {
		host string
		tls  TLS
		fine bool
	}{
		{"", TLS{}, true},
		{"unix:///run/docker.sock", TLS{}, true},
		{"tcp://engine.example:2376", whole, true},
		{"tcp://[::1]:2376", whole, true},
		{"tcp://127.0.0.1:2375", TLS{}, false},
		{"tcp://engine.example:2376", TLS{CA: "/a"}, false},
		{"tcp://engine.example:2376/path", whole, false},
		{"tcp://engine.example", whole, false},
		{"unix:///run/docker.sock", whole, false},
		{"unix://docker.sock", TLS{}, false},
		{"http://engine.example:2375", whole, false},
		{"/run/docker.sock", TLS{}, false},
		{"\x00", TLS{}, false},
	} {
		if err := CheckHost(c.host, c.tls); (err == nil) != c.fine {
			t.Errorf("%q, %+v: %v", c.host, c.tls, err)
		}
	}
}

func TestImportedID(t *testing.T) {
	if id, err := importedID(strings.NewReader("{\"status\":\"reading\"}\n{\"status\":\"sha256:ab12\"}\n")); id != "sha256:ab12" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	for _, text := range []string{"", "{\"status\":\"done\"}", "{\"error\":\"no space\"}", "nonsense", "{\"status\":\"sha256:a/../b\"}"} {
		if id, err := importedID(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %q", text, id)
		}
	}
}

func TestWriteTree_IsTheImage(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "usr", "lib"), 0o755), os.WriteFile(filepath.Join(dir, "usr", "lib", "a.py"), []byte("a"), 0o600),
		os.Symlink("/outside", filepath.Join(dir, "usr", "link")), os.WriteFile(filepath.Join(dir, "one"), []byte("1"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	image := &images.Image{
		Dirs:     []string{"/home"},
		Binds:    []images.Bind{{Source: filepath.Join(dir, "usr"), Target: "/usr", Dir: true}, {Source: filepath.Join(dir, "one"), Target: "/opt/one"}},
		Symlinks: []images.Symlink{{Path: "/lib", Target: "usr/lib"}}, Files: []images.File{{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root")}},
	}
	var archive bytes.Buffer
	if err := writeTree(t.Context(), &archive, image); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || got[h.Name] != "" {
			t.Errorf("%s belongs to %d, or is there twice", h.Name, h.Uid)
		}
		text, _ := io.ReadAll(r)
		got[h.Name] = string(h.Typeflag) + h.Linkname + string(text)
	}
	for name, want := range map[string]string{
		"tmp/": "5", "workspace/": "5", "home/": "5", "usr/": "5", "usr/lib/a.py": "0a", "usr/link": "2/outside", "opt/": "5", "opt/one": "01",
		"lib": "2usr/lib", "etc/passwd": "0root",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}
