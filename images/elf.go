package images

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds on one object. The largest libraries known (GPU kernels) have dynamic
// string tables of some 20 MiB and fewer than 100 needed libraries.
const (
	maxDynamicBytes = 64 << 20
	maxNeeded       = 512
	maxNameBytes    = 4096
)

// object is what the loader reads of an ELF file (ld.so(8)).
type object struct {
	path           string // where it was found
	class          elf.Class
	machine        elf.Machine
	interp         string // PT_INTERP, only of programs
	needed         []string
	rpath, runpath []string
}

var errNotELF = errors.New("not an ELF file")

// readObject reads a file's dynamic section. Files are hostile input: whatever
// is allocated for them is bounded first.
func readObject(path string) (*object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	magic := make([]byte, len(elf.ELFMAG))
	if !info.Mode().IsRegular() {
		return nil, errNotELF
	}
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return nil, errNotELF
	}
	return parseObject(path, io.NewSectionReader(f, 0, info.Size()))
}

// goArches are the machines that Go and the interpreters of images have in common.
var goArches = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x", elf.EM_386: "386",
}

// Program is what an executable asks for before it can start.
type Program struct {
	Arch   string // as GOARCH; the machine's ELF name where Go has none
	Loader string // its dynamic loader's path; "" where it needs none
}

// ReadProgram reads an executable's header. It may be hostile.
func ReadProgram(r io.ReaderAt) (Program, error) {
	o, err := parseObject("program", r)
	if err != nil {
		return Program{}, err
	}
	return Program{Arch: cmp.Or(goArches[o.machine], o.machine.String()), Loader: o.interp}, nil
}

func parseObject(path string, r io.ReaderAt) (*object, error) {
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err := boundDynamic(file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	o := &object{path: path, class: file.Class, machine: file.Machine}
	for tag, into := range map[elf.DynTag]*[]string{
		elf.DT_NEEDED: &o.needed, elf.DT_RPATH: &o.rpath, elf.DT_RUNPATH: &o.runpath,
	} {
		if *into, err = file.DynString(tag); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", tag, path, err)
		}
		if err := boundNames(*into); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", tag, path, err)
		}
	}
	o.rpath, o.runpath = splitPaths(o.rpath), splitPaths(o.runpath)
	o.interp, err = readInterp(file)
	return o, err
}

// boundDynamic refuses sections that would be costly to load: debug/elf reads
// the dynamic section and its strings whole, and would decompress them.
func boundDynamic(file *elf.File) error {
	for i, section := range file.Sections {
		if section.Type != elf.SHT_DYNAMIC && section.Type != elf.SHT_STRTAB {
			continue
		}
		used := section.Type == elf.SHT_DYNAMIC || linkedByDynamic(file, i)
		if used && (section.Size > maxDynamicBytes || section.Flags&elf.SHF_COMPRESSED != 0) {
			return fmt.Errorf("section %d is too large or compressed", i)
		}
	}
	return nil
}

func linkedByDynamic(file *elf.File, strings int) bool {
	for _, section := range file.Sections {
		if section.Type == elf.SHT_DYNAMIC && int(section.Link) == strings {
			return true
		}
	}
	return false
}

func boundNames(names []string) error {
	if len(names) > maxNeeded {
		return fmt.Errorf("%d entries", len(names))
	}
	for _, name := range names {
		if len(name) > maxNameBytes || strings.ContainsRune(name, 0) {
			return errors.New("overlong or malformed name")
		}
	}
	return nil
}

func splitPaths(lists []string) []string {
	var out []string
	for _, list := range lists {
		for path := range strings.SplitSeq(list, ":") {
			if path != "" {
				out = append(out, path)
			}
		}
	}
	return out
}

// readInterp returns the program's loader, "" for a library.
func readInterp(file *elf.File) (string, error) {
	for _, prog := range file.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		if prog.Filesz > maxNameBytes {
			return "", errors.New("overlong loader name")
		}
		data, err := io.ReadAll(prog.Open())
		if err != nil {
			return "", fmt.Errorf("read loader name: %w", err)
		}
		return string(bytes.TrimRight(data, "\x00")), nil
	}
	return "", nil
}
