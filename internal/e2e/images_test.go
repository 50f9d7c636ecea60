package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
)

// quiet is a daemon that starts soon.
const quiet = "[engine.native]\nready = 0\n"

// smallTree is the least that is taken for an image with Python, and what takes a
// while to unpack.
func smallTree(t *testing.T, files int) map[string][]byte {
	t.Helper()
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	var program bytes.Buffer
	err := binary.Write(&program, binary.LittleEndian, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machines[runtime.GOARCH]), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	program.WriteString("\x003.11.9\x00")
	m := map[string][]byte{
		"usr/bin/python3.11": program.Bytes(), "usr/bin/python3": program.Bytes(),
		"usr/lib/python3.11/os.py": nil, "usr/lib/python3.11/lib-dynload/_ctypes.x.so": nil,
	}
	for i := range files {
		m[fmt.Sprintf("usr/share/d%d/f", i)] = bytes.Repeat([]byte{byte(i)}, 40_000)
	}
	return m
}

// packed is a tree as a tar.
func packed(t *testing.T, m map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(m[name])), ModTime: time.Unix(1_700_000_000, 0)})
		if err == nil {
			_, err = w.Write(m[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (p place) images() string { return filepath.Join(p.state, "images") }

// stored describes every file of the store's trees.
func (p place) stored(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	trees := filepath.Join(p.images(), "trees")
	err := filepath.WalkDir(trees, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.Name() == "record.json" {
			return err
		}
		if path != trees {
			found[strings.TrimPrefix(path, trees)] = fmt.Sprint(info.Mode(), " ", info.Size()*int64(map[bool]int{false: 1}[d.IsDir()]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// unfinished lists what imports have left.
func (p place) unfinished() []string {
	var left []string
	entries, _ := os.ReadDir(filepath.Join(p.images(), "tmp"))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return left
}

// TestImages_RunInOneThatWasImported by the command line: it is listed, run in, held
// by its run, and gone when it is removed.
func TestImages_RunInOneThatWasImported(t *testing.T) {
	testenv.Cgroup(t)
	base := enginetest.BaseArchive(t)
	p := newPlace(t, quiet)
	d := p.start(t)
	code, stdout, stderr := d.ctl(t, "", "images", "import", base, "--name", "base")
	if code != 0 || !strings.HasPrefix(stdout, "sha256:") || !strings.Contains(stderr, "unpacking") {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	digest, _, _ := strings.Cut(stdout, " ")
	if code, stdout, stderr = d.ctl(t, "", "images", "ls"); code != 0 || !strings.Contains(stdout, "\nbase ") || !strings.Contains(stdout, digest[7:19]) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, reference := range []string{"base", digest, digest[7:19]} {
		spec := programSpec(enginetest.InStoredImage)
		spec.Image = reference
		if r := d.run(t, spec); !r.Passed || r.Image != "base "+digest || r.Engine != "native" {
			t.Errorf("%s: %s in %q by %s\n%s", reference, r.Verdict, r.Image, r.Engine, r.Summary)
		}
	}
	if r := d.run(t, programSpec("import os\nassert not os.path.exists('/usr/share/doc/base-files')")); !r.Passed || !strings.HasPrefix(r.Image, "host ") {
		t.Errorf("without an image: %s in %q", r.Verdict, r.Image)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		spec := programSpec("import time\ntime.sleep(14)")
		spec.Image = "base"
		_, _ = d.client.Run(ctx, spec) // it is canceled
	}()
	d.waitLive(t, 1)
	if code, _, stderr = d.ctl(t, "", "images", "rm", "base"); code != 3 || !strings.Contains(stderr, "conflict") {
		t.Errorf("removal while in use: exit %d, %s", code, stderr)
	}
	cancel()
	<-gone
	d.stop(t)
	d = p.start(t)
	if code, _, stderr = d.ctl(t, "", "images", "rm", "base"); code != 0 || len(p.stored(t)) > 0 || len(p.unfinished()) > 0 {
		t.Errorf("removal: exit %d, %s; left %v, %v", code, stderr, p.stored(t), p.unfinished())
	}
}

// TestImages_StoreIsWholeAfterKills kills the daemon at 20 random points of an
// import: what is in the store afterwards is the image, or nothing of it.
func TestImages_StoreIsWholeAfterKills(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, quiet)
	archive := filepath.Join(p.dir, "image.tar")
	if err := os.WriteFile(archive, packed(t, smallTree(t, 250)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := p.start(t)
	began := time.Now()
	code, digest, stderr := d.ctl(t, "", "images", "import", archive, "-q", "--name", "x")
	took := time.Since(began)
	if code != 0 {
		t.Fatal(stderr)
	}
	digest = strings.TrimSpace(digest)
	want := p.stored(t)
	amid, whole := 0, 0
	for i := range 20 {
		if code, _, stderr := d.ctl(t, "", "images", "gc", "--unused", "1ms"); code != 0 || len(p.stored(t)) > 0 {
			t.Errorf("kill %d: collection: %s, left %d files", i, stderr, len(p.stored(t)))
		}
		after := rand.N(took)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sandboxctl"), "images", "import", archive, "-q", "--name", "x")
		cmd.Env = append(os.Environ(), "SANDBOXD_SOCKET="+d.socket)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		d.kill(t)
		_ = cmd.Wait() // its daemon has gone
		if len(p.unfinished()) > 0 {
			amid++
		}
		d = p.start(t)
		list, err := d.client.ListImages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := p.stored(t)
		switch {
		case len(list) == 2 && list[1].Digest == digest && maps.Equal(got, want):
			whole++
		case len(list) == 1 && len(got) == 0:
		default:
			t.Errorf("kill %d after %s: %d images, %d files of %d", i, after, len(list), len(got), len(want))
		}
		if left := p.unfinished(); len(left) > 0 {
			t.Errorf("kill %d: left %v", i, left)
		}
	}
	t.Logf("an import takes %s; of 20 kills %d came amid it, and %d after it", took, amid, whole)
	if amid < 5 {
		t.Errorf("only %d kills came amid an import", amid)
	}
	if code, again, stderr := d.ctl(t, "", "images", "import", archive, "-q"); code != 0 || strings.TrimSpace(again) != digest {
		t.Errorf("afterwards: exit %d, %s%s", code, again, stderr)
	}
}

// TestImages_HostileArchiveIsRefusedByName, and leaves nothing anywhere.
func TestImages_HostileArchiveIsRefusedByName(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, quiet)
	d := p.start(t)
	for name, want := range map[string]string{"../escaped": "../escaped", "/escaped": "/escaped", "usr/../../escaped": "usr/../../escaped"} {
		m := smallTree(t, 3)
		m[name] = []byte("x")
		code, stdout, stderr := d.ctl(t, string(packed(t, m)), "images", "import", "-")
		if code != 3 || !strings.Contains(stderr, "invalid: ") || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit %d\n%s%s", name, code, stdout, stderr)
		}
		for path := range filesIn(t, p.dir) {
			if strings.HasSuffix(path, "escaped") {
				t.Errorf("%s was written", path)
			}
		}
	}
	if list, err := d.client.ListImages(t.Context()); err != nil || len(list) != 1 || len(p.stored(t)) > 0 || len(p.unfinished()) > 0 {
		t.Errorf("%d images, left %v, %v", len(list), p.unfinished(), err)
	}
}

// TestImages_ClientGoneLeavesNothing, whether it leaves while it sends or while the
// daemon unpacks.
func TestImages_ClientGoneLeavesNothing(t *testing.T) {
	testenv.Cgroup(t)
	p := newPlace(t, quiet)
	d := p.start(t)
	archive := packed(t, smallTree(t, 400))
	for title, send := range map[string]func(gone context.CancelFunc) apiclient.Archive{
		"sending": func(gone context.CancelFunc) apiclient.Archive {
			return apiclient.Archive{Content: &leaving{r: bytes.NewReader(archive), left: len(archive) / 2, gone: gone}}
		},
		"unpacking": func(context.CancelFunc) apiclient.Archive {
			return apiclient.Archive{Content: bytes.NewReader(archive)}
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := d.client.ImportImage(ctx, send(cancel), func(sandbox.ImageProgress) { cancel() }); err == nil {
			t.Errorf("%s: it came", title)
		}
		cancel()
		eventually(t, "files of an import that nobody waits for", p.unfinished)
		if list, err := d.client.ListImages(t.Context()); err != nil || len(list) != 1 || len(p.stored(t)) > 0 {
			t.Errorf("%s: %d images, %v", title, len(list), err)
		}
	}
}

// leaving is an archive whose sender leaves in the middle.
type leaving struct {
	r    *bytes.Reader
	left int
	gone context.CancelFunc
}

func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= n; l.left <= 0 {
		l.gone()
	}
	return n, err
}

// TestImages_PullFromARegistry that serves one image of one layer.
func TestImages_PullFromARegistry(t *testing.T) {
	testenv.Cgroup(t)
	layer := packed(t, smallTree(t, 3))
	blobs := map[string][]byte{}
	put := func(data []byte) (digest string, size int) {
		digest = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		blobs[digest] = data
		return digest, len(data)
	}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	l := descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar"}
	l.Digest, l.Size = put(layer)
	c := descriptor{MediaType: "application/vnd.oci.image.config.v1+json"}
	c.Digest, c.Size = put(encode(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}},
	}))
	manifest := encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": c, "layers": []descriptor{l}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, digest, isBlob := strings.Cut(r.URL.Path, "/blobs/")
		switch {
		case r.URL.Path == "/v2/":
		case r.URL.Path == "/v2/team/py/manifests/1":
			w.Header().Set("Content-Type", manifestType)
			_, _ = w.Write(manifest)
		case isBlob && blobs[digest] != nil:
			_, _ = w.Write(blobs[digest])
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	d := newPlace(t, quiet).start(t)
	host := strings.TrimPrefix(server.URL, "http://")
	code, pulled, stderr := d.ctl(t, "", "images", "pull", host+"/team/py:1", "-q")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	code, imported, stderr := d.ctl(t, string(layer), "images", "import", "-", "-q")
	if code != 0 || imported != pulled {
		t.Errorf("the same content is another image: %s%s%s", pulled, imported, stderr)
	}
	i, err := d.client.InspectImage(t.Context(), host+"/team/py:1")
	if err != nil || !strings.Contains(i.Origin, "@sha256:") || i.PythonVersion != "3.11.9" {
		t.Errorf("%+v, %v", i, err)
	}
	if code, _, stderr = d.ctl(t, "", "images", "pull", host+"/team/none:1"); code != 3 || !strings.Contains(stderr, "not_found") {
		t.Errorf("unknown: exit %d, %s", code, stderr)
	}
}
