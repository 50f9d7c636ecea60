package images

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxObjects bounds a closure; a large scientific installation has about 2,000
// extension modules and libraries.
const maxObjects = 20_000

// library is a shared library and the name under which the loader will look for
// it in the image.
type library struct {
	source, target string
}

// closure collects what the loader would load for a program and the modules that
// it may import, by the rules of ld.so(8) without LD_LIBRARY_PATH. Capability
// subdirectories (glibc-hwcaps) are left out: they hold faster copies of
// libraries that the plain directories have as well.
type closure struct {
	root     string // "" on the host, a directory in tests
	program  *object
	defaults []string
	conf     []string

	libraries map[string]library // by target
	seen      map[string]bool    // by real path
	missing   []Missing
}

// newClosure starts with the interpreter and its loader.
func newClosure(root, program string) (*closure, error) {
	o, err := readObject(root + program)
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	o.path = program
	c := &closure{
		root: root, program: o, defaults: defaultDirs(root, o.machine), conf: confDirs(root),
		libraries: map[string]library{}, seen: map[string]bool{program: true},
	}
	if len(c.defaults) == 0 {
		return nil, errors.New("interpreter: no library directory")
	}
	if o.interp != "" {
		if err := c.addLoader(o.interp); err != nil {
			return nil, err
		}
	}
	if err := c.follow(o, nil); err != nil {
		return nil, err
	}
	if len(c.missing) > 0 {
		return nil, fmt.Errorf("interpreter: library %s not found", c.missing[0].Library)
	}
	return c, nil
}

// addLoader binds the dynamic loader at the path that the program names.
func (c *closure) addLoader(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("interpreter: loader %q is not absolute", path)
	}
	return c.record(filepath.Clean(path), filepath.Base(path), filepath.Dir(path))
}

// addModule follows an extension module. Modules that are no ELF files for this
// machine are skipped, as importing them would fail on the host.
func (c *closure) addModule(path string) error {
	o, err := readObject(c.root + path)
	if errors.Is(err, errNotELF) {
		return nil
	}
	if err != nil {
		c.missing = append(c.missing, Missing{Object: path, Reason: err.Error()})
		return nil
	}
	if !c.fits(o) {
		return nil
	}
	o.path = path
	return c.follow(o, nil)
}

// addOptional adds a library that is loaded by name at run time, if the host has
// it.
func (c *closure) addOptional(name string) error {
	found, ok := c.search(name, c.program, nil)
	if !ok {
		return nil
	}
	return c.take(found, name, nil)
}

func (c *closure) fits(o *object) bool {
	return o.class == c.program.class && o.machine == c.program.machine
}

// follow adds what o needs. inherited are the DT_RPATH entries of the objects
// that led here: they are searched for the libraries' libraries, too.
func (c *closure) follow(o *object, inherited []string) error {
	if len(c.seen) > maxObjects {
		return fmt.Errorf("more than %d shared objects", maxObjects)
	}
	rpath := slices.Concat(origins(o.rpath, o.path), inherited)
	for _, name := range o.needed {
		found, ok := c.search(name, o, rpath)
		if !ok {
			c.missing = append(c.missing, Missing{Object: o.path, Library: name, Reason: "not found"})
			continue
		}
		if err := c.take(found, name, rpath); err != nil {
			return err
		}
	}
	return nil
}

// hit is where a library was found.
type hit struct {
	path   string
	cached bool // by ld.so.conf: the image has no cache to find it by
	object *object
}

// search looks for a library in the loader's order: DT_RPATH unless there is a
// DT_RUNPATH, DT_RUNPATH, the cache, the default directories.
func (c *closure) search(name string, from *object, rpath []string) (hit, bool) {
	if strings.Contains(name, "/") {
		return c.look(expand(name, from.path), false)
	}
	runpath := origins(from.runpath, from.path)
	if len(from.runpath) > 0 {
		rpath = nil
	}
	for _, step := range []struct {
		dirs   []string
		cached bool
	}{{rpath, false}, {runpath, false}, {c.conf, true}, {c.defaults, false}} {
		for _, dir := range step.dirs {
			if h, ok := c.look(filepath.Join(dir, name), step.cached); ok {
				return h, true
			}
		}
	}
	return hit{}, false
}

func (c *closure) look(path string, cached bool) (hit, bool) {
	if !filepath.IsAbs(path) {
		return hit{}, false
	}
	o, err := readObject(c.root + path)
	if err != nil || !c.fits(o) {
		return hit{}, false
	}
	o.path = path
	return hit{path: path, cached: cached, object: o}, true
}

// take records a library under the name it is looked for by, and follows it.
func (c *closure) take(h hit, name string, rpath []string) error {
	dir := filepath.Dir(h.path)
	if h.cached && !slices.Contains(c.defaults, dir) {
		dir = c.defaults[0]
	}
	if err := c.record(h.path, filepath.Base(name), dir); err != nil {
		return err
	}
	real, err := c.real(h.path)
	if err != nil || c.seen[real] {
		return err
	}
	c.seen[real] = true
	return c.follow(h.object, rpath)
}

// record binds source as dir/name, with the links in dir resolved so that no
// bind goes through a link of the image.
func (c *closure) record(source, name, dir string) error {
	real, err := c.real(source)
	if err != nil {
		return err
	}
	realDir, err := c.real(dir)
	if err != nil {
		return err
	}
	target := filepath.Join(realDir, name)
	if _, ok := c.libraries[target]; !ok {
		c.libraries[target] = library{source: real, target: target}
	}
	return nil
}

func (c *closure) real(path string) (string, error) {
	real, err := filepath.EvalSymlinks(c.root + path)
	return strings.TrimPrefix(real, c.root), err
}

// origins expands $ORIGIN in search paths. Entries with other variables are left
// out: their value is the loader's own.
func origins(paths []string, from string) []string {
	var out []string
	for _, path := range paths {
		path = expand(path, from)
		if filepath.IsAbs(path) && !strings.Contains(path, "$") {
			out = append(out, filepath.Clean(path))
		}
	}
	return out
}

func expand(path, from string) string {
	dir := filepath.Dir(from)
	return strings.NewReplacer("$ORIGIN", dir, "${ORIGIN}", dir).Replace(path)
}
