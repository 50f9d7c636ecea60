package images

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fakeELF writes a minimal 64-bit object with a dynamic section.
type fakeELF struct {
	machine        elf.Machine
	interp         string
	needed         []string
	rpath, runpath string
}

func (f fakeELF) bytes(t testing.TB) []byte {
	t.Helper()
	var strtab bytes.Buffer
	strtab.WriteByte(0)
	add := func(s string) uint64 {
		at := uint64(strtab.Len())
		strtab.WriteString(s + "\x00")
		return at
	}
	var dynamic []uint64
	for _, name := range f.needed {
		dynamic = append(dynamic, uint64(elf.DT_NEEDED), add(name))
	}
	if f.rpath != "" {
		dynamic = append(dynamic, uint64(elf.DT_RPATH), add(f.rpath))
	}
	if f.runpath != "" {
		dynamic = append(dynamic, uint64(elf.DT_RUNPATH), add(f.runpath))
	}
	dynamic = append(dynamic, uint64(elf.DT_NULL), 0)
	var body bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&body, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	const ehsize, phsize = 64, 56
	interp := append([]byte(f.interp), 0)
	base := uint64(ehsize + phsize)
	interpAt, dynAt := base, base+uint64(len(interp))
	strAt := dynAt + uint64(8*len(dynamic))
	shAt := strAt + uint64(strtab.Len())
	machine := f.machine
	if machine == 0 {
		machine = elf.EM_X86_64
	}
	put(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: ehsize, Shoff: shAt, Ehsize: ehsize, Phentsize: phsize, Phnum: 1, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	})
	ptype := elf.PT_NULL
	if f.interp != "" {
		ptype = elf.PT_INTERP
	}
	put(elf.Prog64{Type: uint32(ptype), Off: interpAt, Filesz: uint64(len(interp)), Memsz: uint64(len(interp))})
	put(interp)
	put(dynamic)
	put(strtab.Bytes())
	put(elf.Section64{})
	put(elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: dynAt, Size: uint64(8 * len(dynamic)), Link: 2, Entsize: 16})
	put(elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: strAt, Size: uint64(strtab.Len())})
	return body.Bytes()
}

// tree writes a fake host. Links start with "->".
func tree(t *testing.T, objects map[string]fakeELF, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	place := func(path string) string {
		full := root + path
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	for path, object := range objects {
		if err := os.WriteFile(place(path), object.bytes(t), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range texts {
		var err error
		if target, ok := bytes.CutPrefix([]byte(text), []byte("->")); ok {
			err = os.Symlink(string(target), place(path))
		} else {
			err = os.WriteFile(place(path), []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const multiarch = "/usr/lib/x86_64-linux-gnu/"

// hostTree is a small merged-/usr host.
func hostTree(t *testing.T) string {
	t.Helper()
	return tree(t, map[string]fakeELF{
		"/usr/bin/python3.11":          {interp: "/lib64/ld.so.2", needed: []string{"libc.so.6"}},
		multiarch + "ld-real.so":       {},
		multiarch + "libc-2.36.so":     {},
		multiarch + "libz.so.1":        {needed: []string{"libc.so.6"}},
		"/opt/x/libcached.so.1":        {needed: []string{"libdeep.so"}, runpath: "${ORIGIN}/deep"},
		"/opt/x/deep/libdeep.so":       {},
		"/opt/x/libforeign.so":         {machine: elf.EM_AARCH64},
		multiarch + "libforeign.so":    {},
		"/site/pkg/mod.so":             {needed: []string{"libown.so", "libz.so.1"}, runpath: "$ORIGIN/../pkg.libs"},
		"/site/pkg.libs/libown.so":     {needed: []string{"libsecond.so"}},
		"/site/pkg.libs/libsecond.so":  {},
		"/site/old/mod.so":             {needed: []string{"libparent.so"}, rpath: "$ORIGIN/libs"},
		"/site/old/libs/libparent.so":  {needed: []string{"libinherit.so"}},
		"/site/old/libs/libinherit.so": {},
		"/site/cached.so":              {needed: []string{"libcached.so.1"}},
		"/site/foreign.so":             {needed: []string{"libforeign.so"}},
		"/site/lost.so":                {needed: []string{"libnowhere.so", "libz.so.1"}},
		"/site/arm.so":                 {machine: elf.EM_AARCH64, needed: []string{"libnever.so"}},
	}, map[string]string{
		"/lib":                     "->usr/lib",
		"/lib64":                   "->usr/lib64",
		"/usr/lib64/ld.so.2":       "->../lib/x86_64-linux-gnu/ld-real.so",
		multiarch + "libc.so.6":    "->libc-2.36.so",
		"/etc/ld.so.conf":          "include ld.so.conf.d/*.conf\n",
		"/etc/ld.so.conf.d/x.conf": "# comment\n/opt/x\nrelative/is/ignored\n",
		"/site/script.so":          "INPUT(libz.so)",
	})
}

func targets(c *closure) []string { return slices.Sorted(maps.Keys(c.libraries)) }

func TestClosure_StartsWithLoaderAndInterpreter(t *testing.T) {
	c, err := newClosure(hostTree(t), "/usr/bin/python3.11")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]library{
		"/usr/lib64/ld.so.2":    {multiarch + "ld-real.so", "/usr/lib64/ld.so.2"},
		multiarch + "libc.so.6": {multiarch + "libc-2.36.so", multiarch + "libc.so.6"},
	}
	if !maps.Equal(c.libraries, want) {
		t.Errorf("got %v", c.libraries)
	}
}

func TestClosure_FollowsSearchRules(t *testing.T) {
	start := []string{multiarch + "libc.so.6", "/usr/lib64/ld.so.2"}
	for module, want := range map[string][]string{
		// RUNPATH finds the module's own libraries, but not their libraries.
		"/site/pkg/mod.so": {"/site/pkg.libs/libown.so", multiarch + "libz.so.1"},
		// RPATH is inherited.
		"/site/old/mod.so": {"/site/old/libs/libparent.so", "/site/old/libs/libinherit.so"},
		// A library of ld.so.conf moves to where the loader looks without a cache;
		// what it finds by its own RUNPATH stays.
		"/site/cached.so": {multiarch + "libcached.so.1", "/opt/x/deep/libdeep.so"},
		// Libraries for another machine are passed over.
		"/site/foreign.so": {multiarch + "libforeign.so"},
		"/site/lost.so":    {multiarch + "libz.so.1"},
		"/site/script.so":  nil,
		"/site/arm.so":     nil,
	} {
		c, err := newClosure(hostTree(t), "/usr/bin/python3.11")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.addModule(module); err != nil {
			t.Fatal(err)
		}
		want = append(want, start...)
		slices.Sort(want)
		if got := targets(c); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", module, got, want)
		}
		wantMissing := map[string]string{"/site/pkg/mod.so": "libsecond.so", "/site/lost.so": "libnowhere.so"}[module]
		if (len(c.missing) > 0) != (wantMissing != "") || (wantMissing != "" && c.missing[0].Library != wantMissing) {
			t.Errorf("%s: missing %v, want %q", module, c.missing, wantMissing)
		}
	}
}

func TestClosure_RefusesBrokenInterpreter(t *testing.T) {
	for name, object := range map[string]fakeELF{
		"no library":      {needed: []string{"libnowhere.so"}},
		"relative loader": {interp: "ld.so"},
		"no loader":       {interp: "/lib/nowhere.so"},
	} {
		root := tree(t, map[string]fakeELF{"/python": object, multiarch + "libx.so": {}}, nil)
		if _, err := newClosure(root, "/python"); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	root := tree(t, nil, map[string]string{"/python": "#!/bin/sh\n", "/usr/lib/x": ""})
	if _, err := newClosure(root, "/python"); err == nil {
		t.Error("a script was taken for an interpreter")
	}
}

func TestClosure_EndsOnCycles(t *testing.T) {
	root := tree(t, map[string]fakeELF{
		"/python":             {needed: []string{"liba.so"}},
		multiarch + "liba.so": {needed: []string{"libb.so"}},
		multiarch + "libb.so": {needed: []string{"liba.so", "libb.so"}},
	}, nil)
	c, err := newClosure(root, "/python")
	if err != nil || len(c.libraries) != 2 {
		t.Errorf("%v, %v", targets(c), err)
	}
}

func TestConf_EndsOnSelfInclusion(t *testing.T) {
	root := tree(t, nil, map[string]string{"/etc/ld.so.conf": "include /etc/ld.so.conf\n/a\n/b # c\n"})
	if got := confDirs(root); !slices.Contains(got, "/a") || !slices.Contains(got, "/b") || len(got) > 20 {
		t.Errorf("got %v", got)
	}
}

// FuzzParseObject feeds broken objects; nothing but an error may come of them.
func FuzzParseObject(f *testing.F) {
	good := fakeELF{interp: "/lib/ld.so", needed: []string{"liba.so", "libb.so"}, rpath: "$ORIGIN:/x", runpath: "/y"}.bytes(f)
	f.Add(good)
	for _, cut := range []int{16, 64, 100, 130, len(good) - 70, len(good) - 1} {
		f.Add(good[:cut])
	}
	for at := 0; at < len(good); at += 3 {
		broken := bytes.Clone(good)
		broken[at] ^= 0xff
		f.Add(broken)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObject("x", bytes.NewReader(data))
		if err == nil && len(o.needed) > maxNeeded {
			t.Errorf("%d names", len(o.needed))
		}
	})
}
