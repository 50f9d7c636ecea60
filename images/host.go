package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// HostConfig says which of the machine's interpreters to use.
type HostConfig struct {
	// Python is an absolute path, DefaultPython where empty. A python found by
	// PATH may be a user's own, so there is no search.
	Python string
	// Users fill the made /etc/passwd; the default has root, sandbox (1000) and
	// nobody.
	Users []User
}

// DefaultPython is the distribution's interpreter.
const DefaultPython = "/usr/bin/python3"

// maxTreeEntries bounds the walk over packages; a full scientific installation
// has about 100,000 files.
const maxTreeEntries = 2_000_000

// loadedByName are libraries that the C library or Python open at run time,
// without a DT_NEEDED entry: libgcc_s for ending threads, libnss_files before
// glibc 2.34, and what ctypes users name.
var loadedByName = []string{
	"libgcc_s.so.1", "libnss_files.so.2", "libc.so.6", "libm.so.6",
	"libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
}

// dataDirs are read at run time and belong to no package: time zones and the C
// locale.
var dataDirs = []string{"/usr/share/zoneinfo", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8"}

// Host describes the machine's own Python as an image. It starts the interpreter
// once to ask where its library is, and reads every extension module's header,
// which takes some 100 ms.
func Host(ctx context.Context, cfg HostConfig) (*Image, error) {
	python := cmp.Or(cfg.Python, DefaultPython)
	program, err := resolve(python)
	if err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	answer, err := ask(ctx, program)
	if err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	users := cfg.Users
	if users == nil {
		users = defaultUsers
	}
	img := &Image{
		Name: "host", PythonVersion: answer.version(), Interpreter: program, Stdlib: answer.Stdlib,
		SitePackages: answer.siteDirs(), Dirs: []string{"/etc/ssl"}, Files: etcFiles(users),
	}
	trees := outermost(slices.Concat(answer.libraryDirs(), img.SitePackages, existing(dataDirs)))
	libraries, err := img.libraries(ctx, program, slices.Concat(answer.libraryDirs(), img.SitePackages))
	if err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	if err := img.bind(program, trees, libraries); err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	if err := img.link(python, program); err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	if img.Digest, err = digest(img); err != nil {
		return nil, fmt.Errorf("host image: %w", err)
	}
	return img, nil
}

// libraries computes the loader closure of the interpreter and every extension
// module below dirs.
func (img *Image) libraries(ctx context.Context, program string, dirs []string) ([]library, error) {
	c, err := newClosure("", program)
	if err != nil {
		return nil, err
	}
	for _, name := range loadedByName {
		if err := c.addOptional(name); err != nil {
			return nil, err
		}
	}
	modules, err := findModules(ctx, outermost(dirs))
	if err != nil {
		return nil, err
	}
	for _, module := range modules {
		if err := errors.Join(ctx.Err(), c.addModule(module)); err != nil {
			return nil, err
		}
	}
	img.Missing = c.missing
	var out []library
	for _, target := range slices.Sorted(maps.Keys(c.libraries)) {
		out = append(out, c.libraries[target])
	}
	return out, nil
}

// bind fills Binds: whole trees, then the interpreter and the libraries that are
// in none of them.
func (img *Image) bind(program string, trees []string, libraries []library) error {
	for _, tree := range trees {
		info, err := os.Stat(tree)
		if err != nil {
			return err
		}
		img.Binds = append(img.Binds, Bind{Source: tree, Target: tree, Dir: info.IsDir()})
	}
	files := append([]library{{source: program, target: program}}, libraries...)
	for _, file := range files {
		if !inAny(file.target, trees) {
			img.Binds = append(img.Binds, Bind{Source: file.source, Target: file.target})
		}
	}
	slices.SortFunc(img.Binds, func(a, b Bind) int { return strings.Compare(a.Target, b.Target) })
	return nil
}

// link repeats the host's links at the root through which the loader and the
// library directories are named (/lib64 -> usr/lib64), and the interpreter's.
// Links are relative, so that they hold wherever the tree is put together.
func (img *Image) link(python, program string) error {
	for _, dir := range []string{"/lib", "/lib64"} {
		if target, err := filepath.EvalSymlinks(dir); err == nil && target != dir {
			img.Symlinks = append(img.Symlinks, Symlink{Target: strings.TrimPrefix(target, "/"), Path: dir})
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(python))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.Base(python))
	if path == program {
		return nil
	}
	target, err := filepath.Rel(dir, program)
	img.Symlinks = append(img.Symlinks, Symlink{Target: target, Path: path})
	return err
}

// findModules lists the shared objects below dirs. Links are not followed: what
// they lead to is either below dirs as well or not in the image.
func findModules(ctx context.Context, dirs []string) ([]string, error) {
	var modules []string
	entries := 0
	visit := func(path string, entry fs.DirEntry, err error) error {
		if entries++; entries > maxTreeEntries {
			return fmt.Errorf("more than %d files in packages", maxTreeEntries)
		}
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.Type().IsRegular() && (strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")) {
			modules = append(modules, path)
		}
		return ctx.Err()
	}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, visit); err != nil {
			return nil, fmt.Errorf("list extension modules: %w", err)
		}
	}
	return modules, nil
}

// outermost drops what lies below another entry, and sorts.
func outermost(paths []string) []string {
	sorted := slices.Sorted(slices.Values(paths))
	var out []string
	for _, path := range sorted {
		if !inAny(path, out) {
			out = append(out, path)
		}
	}
	return out
}

func inAny(path string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
