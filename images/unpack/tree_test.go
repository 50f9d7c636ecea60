package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxd/sandboxd/sandbox"
)

// member is one entry of a test's archive.
type member struct {
	tar.Header
	data string
}

func file(name, data string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1_700_000_000, 0)}, data}
}

func dir(name string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func symlink(name, target string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}}
}

func hardlink(name, target string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}}
}

func node0(kind byte, name string) member {
	return member{Header: tar.Header{Typeflag: kind, Name: name, Devmajor: 8, Devminor: 0}}
}

func (m member) with(change func(*tar.Header)) member { change(&m.Header); return m }

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&m.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func small() Limits { return Limits{Bytes: 1 << 20, Entries: 100, PathBytes: 512, Depth: 16} }

// newTree makes a tree in a directory beside which there is something to harm.
func newTree(t testing.TB, limits Limits) (*Tree, string) {
	t.Helper()
	outer := t.TempDir()
	path := filepath.Join(outer, "tree")
	if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(outer, "victim"), []byte("whole"), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return New(root, limits), path
}

// harmed tells what is beside the tree other than newTree made it.
func harmed(t testing.TB, path string) string {
	t.Helper()
	outer := filepath.Dir(path)
	entries, err := os.ReadDir(outer)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(outer, "victim"))
	if err != nil || string(data) != "whole" || len(entries) != 2 {
		return strings.TrimSpace(string(data)) + " " + cmp.Diff(nil, entries)
	}
	return ""
}

// show lists a tree as text.
func show(t testing.TB, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == path {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(info.Mode().String() + " " + strings.TrimPrefix(p, path+"/"))
		switch {
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(p)
			b.WriteString(" -> " + target)
		case d.Type().IsRegular():
			data, _ := os.ReadFile(p)
			b.WriteString(" = " + string(data))
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func apply(t testing.TB, tree *Tree, whiteouts bool, members ...member) {
	t.Helper()
	if err := tree.Layer(t.Context(), bytes.NewReader(archive(t, members...)), whiteouts); err != nil {
		t.Fatal(err)
	}
}

func TestTree_KeepsContentAndNothingElse(t *testing.T) {
	tree, path := newTree(t, small())
	apply(t, tree, false,
		dir("./"), file("./a/b/c", "deep"), file("su", "x").with(func(h *tar.Header) {
			h.Mode, h.Uid, h.Uname = 0o6711, 7, "x"
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
		}),
		member{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}},
		symlink("bin", "usr/bin"), symlink("abs", "/etc/x"), symlink("a/up", "../su"), hardlink("a/same", "./su"), hardlink("a/link", "bin"),
		file("su2", "old"), file("su2", "new"),
		node0(tar.TypeChar, "dev/null").with(func(h *tar.Header) { h.Devmajor, h.Devminor = 1, 3 }),
		file("weird\n\xff", ""), file(".wh.kept", ""),
	)
	want := `-rw-r--r-- .wh.kept = 
drwxr-xr-x a
drwxr-xr-x a/b
-rw-r--r-- a/b/c = deep
Lrwxrwxrwx a/link -> usr/bin
-rwx--x--x a/same = x
Lrwxrwxrwx a/up -> ../su
Lrwxrwxrwx abs -> /etc/x
Lrwxrwxrwx bin -> usr/bin
-rwx--x--x su = x
-rw-r--r-- su2 = new
drwxr-xr-x tmp
-rw-r--r-- weird` + "\n\xff = \n"
	if got := show(t, path); got != want {
		t.Errorf("got\n%s", cmp.Diff(want, got))
	}
	if info, err := os.Stat(filepath.Join(path, "a/b/c")); err != nil || info.ModTime().Unix() != 1_700_000_000 {
		t.Errorf("time %v, %v", info.ModTime(), err)
	}
}

// TestTree_ClosesWhatOthersCouldNotRead: programs are others, and own nothing.
func TestTree_ClosesWhatOthersCouldNotRead(t *testing.T) {
	for mode, want := range map[int64][2]string{ // of a file, of a directory
		0o777:  {"-rwxr-xr-x", "drwxr-xr-x"},
		0o666:  {"-rw-r--r--", "drwxr--r--"},
		0o1777: {"-rwxr-xr-x", "drwxr-xr-x"},
		0o640:  {"-rw-------", "drwx------"},
		0o4750: {"-rwx------", "drwx------"},
		0o751:  {"-rwx--x--x", "drwx--x--x"},
		0o070:  {"-rwx------", "drwx------"},
		0:      {"-rw-------", "drwx------"},
	} {
		tree, path := newTree(t, small())
		set := func(h *tar.Header) { h.Mode, h.Uid, h.Gid = mode, 1_000_001, 1_000_001 }
		apply(t, tree, false, file("f", "").with(set), dir("d"), dir("d").with(set), file("d/f", ""))
		lines := strings.Split(show(t, path), "\n")
		if !strings.HasPrefix(lines[0], want[1]+" d") || !strings.HasPrefix(lines[2], want[0]+" f") {
			t.Errorf("%o: got %q", mode, lines)
		}
		for name, expected := range map[string]Entry{
			"f":   {File, 0, want[0][7] == 'r', want[0][9] == 'x'},
			"d/f": {File, 0, want[1][9] == 'x', false},
		} {
			if _, got, err := tree.Resolve(name); err != nil || got != expected {
				t.Errorf("%o: %s: got %+v, %v", mode, name, got, err)
			}
		}
	}
}

func TestTree_AppliesLayers(t *testing.T) {
	tree, path := newTree(t, small())
	apply(t, tree, true, file("gone", ""), file("dir/one", ""), file("dir/two", "2"), file("opaque/old", ""), file("opaque/sub/old", ""),
		symlink("link", "dir"), file("file", ""), dir("swap"), file("swap/x", ""), file("first", "1"))
	apply(t, tree, true,
		file(".wh.gone", ""), file("dir/.wh.one", ""), file("nowhere/.wh.x", ""), file(".wh..wh.plnk", ""),
		// An opaque mark is about lower layers, wherever it stands in its own.
		file("opaque/sub/new", "n"), file("opaque/.wh..wh..opq", ""), file("opaque/kept", ""),
		file("link/now-a-dir", "").with(func(h *tar.Header) { h.Typeflag, h.Name, h.Mode = tar.TypeDir, "link", 0o755 }),
		dir("file"), file("swap", "s"), hardlink("second", "first"), file("first", "changed"),
	)
	want := `drwxr-xr-x dir
-rw-r--r-- dir/two = 2
drwxr-xr-x file
-rw-r--r-- first = changed
drwxr-xr-x link
drwxr-xr-x opaque
-rw-r--r-- opaque/kept = 
drwxr-xr-x opaque/sub
-rw-r--r-- opaque/sub/new = n
-rw-r--r-- second = 1
-rw-r--r-- swap = s
`
	if got := show(t, path); got != want {
		t.Errorf("got\n%s", cmp.Diff(want, got))
	}
}

// hostile are archives of which each must be refused; the last member that
// counts is the one to be named.
func hostile(t testing.TB) map[string]struct {
	names  string
	layers [][]byte
} {
	t.Helper()
	deep := strings.Repeat("d/", 17) + "f"
	out := map[string]struct {
		names  string
		layers [][]byte
	}{}
	add := func(title, names string, layers ...[]member) {
		c := out[title]
		c.names = names
		for _, l := range layers {
			c.layers = append(c.layers, archive(t, l...))
		}
		out[title] = c
	}
	one := func(title, names string, members ...member) { add(title, names, members) }
	one("absolute file", "/victim", file("/victim", "x"))
	one("absolute directory", "/tmp/images-x", dir("/tmp/images-x"))
	one("absolute link", "/x", symlink("/x", "y"))
	one("dots first", "../victim", file("../victim", "x"))
	one("dots in the middle", "a/../../victim", file("a/../../victim", "x"))
	one("dots that stay inside", "a/../b", file("a/../b", "x"))
	one("dots alone", "..", dir(".."))
	one("dots last", "a/..", dir("a"), dir("a/.."))
	one("file as root", ".", file(".", "x"))
	one("link as root", "./", symlink("./.", "/"))
	one("link that climbs", "up", symlink("up", "../victim"))
	one("link that climbs late", "a/up", symlink("a/up", "b/../../../victim"))
	one("link to nothing", "l", symlink("l", ""))
	one("through an absolute link", "out/victim", symlink("out", "/tmp"), file("out/victim", "x"))
	one("through an inner link", "b/c", dir("a"), symlink("b", "a"), file("b/c", "x"))
	one("through a link chain", "c/d/victim", dir("a/b"), symlink("c", "a"), symlink("a/d", "/"), file("c/d/victim", "x"))
	one("directory through a link", "b/c", symlink("b", "/tmp"), dir("b/c"))
	one("link through a link", "b/c", symlink("b", "/tmp"), symlink("b/c", "x"))
	one("directory swapped for a link", "a/victim", dir("a"), file("a/x", ""), symlink("a", "/tmp"), file("a/victim", "x"))
	one("through a file", "f/g", file("f", ""), file("f/g", ""))
	one("hard link out", "h", hardlink("h", "../victim"))
	one("hard link to absolute", "h", hardlink("h", "/etc/passwd"))
	one("hard link to nothing", "h", hardlink("h", "nothing"))
	one("hard link to a directory", "h", dir("d"), hardlink("h", "d"))
	one("hard link through a link", "h", symlink("l", "/etc"), hardlink("h", "l/passwd"))
	one("hard link under a link", "l/h", file("f", ""), symlink("l", "/tmp"), hardlink("l/h", "f"))
	one("hard link over its parent", "d", file("d/f", ""), hardlink("d", "d/f"))
	one("hard link to a link, moved up", "l", symlink("a/b/l", "../../x"), hardlink("l", "a/b/l"))
	one("block device", "dev/sda", node0(tar.TypeBlock, "dev/sda"))
	one("character device", "mem", node0(tar.TypeChar, "mem"))
	one("disk under the name of null", "dev/null", node0(tar.TypeChar, "dev/null"))
	one("block device as null", "dev/null", node0(tar.TypeBlock, "dev/null").with(func(h *tar.Header) { h.Devmajor, h.Devminor = 1, 3 }))
	one("fifo", "pipe", node0(tar.TypeFifo, "pipe"))
	one("unknown type", "odd", member{Header: tar.Header{Typeflag: 'Z', Name: "odd"}})
	one("overlong part of a name", "a", file("x", "").with(func(h *tar.Header) { h.Name = "a" + strings.Repeat("b", 256) }))
	one("too deep", "d/d/d", file(deep, ""))
	one("too long", "long", file("long/"+strings.Repeat("x/", 300), "").with(func(h *tar.Header) { h.Typeflag = tar.TypeDir }))
	one("link too long", "l", symlink("l", strings.Repeat("x/", 300)))
	one("one large file", "big", file("big", strings.Repeat("x", 1<<20+1)))
	one("many files", "f", repeated(file("f", ""), 101)...)
	one("many large files", "f", repeated(file("f", strings.Repeat("x", 400<<10)), 3)...)
	add("through a link of the layer below", "l/x", []member{symlink("l", "/tmp")}, []member{file("l/x", "")})
	add("size over layers", "g", []member{file("f", strings.Repeat("x", 600<<10))}, []member{file(".wh.f", ""), file("g", strings.Repeat("x", 600<<10))})
	add("whiteout of nothing", ".wh.", []member{file(".wh.", "")})
	add("whiteout of the parent", ".wh...", []member{file("a/b", "")}, []member{file("a/.wh...", "")})
	add("whiteout through a link", "l/.wh.x", []member{symlink("l", "/tmp")}, []member{file("l/.wh.x", "")})
	add("opaque through a link", "l/.wh..wh..opq", []member{symlink("l", "/tmp")}, []member{file("l/.wh..wh..opq", "")})
	return out
}

func repeated(m member, n int) []member {
	var out []member
	for range n {
		out = append(out, m)
	}
	return out
}

func TestTree_RefusesHostileMembers(t *testing.T) {
	cases := hostile(t)
	if len(cases) < 30 {
		t.Fatalf("only %d archives", len(cases))
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			tree, path := newTree(t, small())
			var err error
			for _, layer := range c.layers {
				err = errors.Join(err, tree.Layer(t.Context(), bytes.NewReader(layer), len(c.layers) > 1 || strings.HasPrefix(title, "whiteout")))
			}
			if sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), "member \"") || !strings.Contains(err.Error(), c.names) {
				t.Errorf("got %v, which does not name %q", err, c.names)
			}
			if harm := harmed(t, path); harm != "" {
				t.Errorf("outside: %s", harm)
			}
			if _, err := os.Lstat("/tmp/victim"); err == nil {
				t.Error("/tmp/victim was written")
			}
		})
	}
}

func TestTree_RefusesBrokenStreams(t *testing.T) {
	whole := archive(t, file("a", strings.Repeat("x", 5000)))
	zeros := append(bytes.Clone(whole), make([]byte, 4<<20)...)
	for title, data := range map[string][]byte{"cut in a header": whole[:300], "cut in a file": whole[:3000], "no tar": bytes.Repeat([]byte("x"), 1024), "endless end": zeros} {
		tree, _ := newTree(t, small())
		if err := tree.Layer(t.Context(), bytes.NewReader(data), false); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: got %v", title, err)
		}
	}
}

func TestTree_ResolvesWithinItself(t *testing.T) {
	tree, _ := newTree(t, small())
	apply(t, tree, false, file("usr/bin/python3.11", ""), symlink("usr/bin/python3", "python3.11"), symlink("bin", "usr/bin"),
		symlink("etc/alt", "/usr/bin/python3"), symlink("usr/bin/py", "../../etc/alt"), symlink("loop", "loop"), symlink("far", "/../../usr"))
	for name, want := range map[string]string{
		"/bin/python3": "usr/bin/python3.11", "usr/bin/py": "usr/bin/python3.11", "far/bin": "usr/bin", "../../usr": "usr", "loop": "", "usr/none": "",
	} {
		got, _, err := tree.Resolve(name)
		if got != want || (want == "") != (err != nil) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestMeasure_KnowsEveryDifference(t *testing.T) {
	digest := func(members ...member) string {
		tree, path := newTree(t, small())
		apply(t, tree, false, members...)
		root, err := os.OpenRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		c, err := Measure(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest
	}
	first := digest(dir("d"), file("a", "1"), symlink("l", "a"))
	if again := digest(file("a", "1").with(func(h *tar.Header) { h.Uid = 5 }), symlink("l", "a"), dir("d")); again != first {
		t.Errorf("the order and owners count: %s, %s", first, again)
	}
	for title, members := range map[string][]member{
		"content": {dir("d"), file("a", "2"), symlink("l", "a")},
		"name":    {dir("e"), file("a", "1"), symlink("l", "a")},
		"target":  {dir("d"), file("a", "1"), symlink("l", "b")},
		"dir":     {dir("d").with(func(h *tar.Header) { h.Mode = 0o700 }), file("a", "1"), symlink("l", "a")},
		"mode":    {dir("d"), file("a", "1").with(func(h *tar.Header) { h.Mode = 0o755 }), symlink("l", "a")},
		"time":    {dir("d"), file("a", "1").with(func(h *tar.Header) { h.ModTime = time.Unix(9, 0) }), symlink("l", "a")},
		"kind":    {dir("d"), file("a", "1"), file("l", "a")},
	} {
		if digest(members...) == first {
			t.Errorf("another %s, the same digest", title)
		}
	}
}

// FuzzTree unpacks broken and hostile archives: whatever they hold, nothing
// outside the tree changes, and the tree holds only what Measure accepts.
func FuzzTree(f *testing.F) {
	for _, c := range hostile(f) {
		for _, layer := range c.layers {
			if len(layer) < 64<<10 {
				f.Add(layer)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, path := newTree(t, small())
		_ = tree.Layer(t.Context(), bytes.NewReader(data), true)
		_ = tree.Layer(t.Context(), bytes.NewReader(data), true)
		if harm := harmed(t, path); harm != "" {
			t.Fatal(harm)
		}
		if c, err := Measure(t.Context(), tree.root); err != nil || c.Bytes > 2*small().Bytes {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
