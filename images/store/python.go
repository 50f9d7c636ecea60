package store

import (
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/images/unpack"
	"github.com/sandboxd/sandboxd/sandbox"
)

// oldest is the oldest minor version that the guest runs on.
const oldest = 9

// programDirs are searched for an interpreter in this order, that of PATH.
var programDirs = []string{"usr/local/bin", "usr/bin"}

var interpreterName = regexp.MustCompile(`^python3\.(\d{1,3})$`)

func noPython(format string, args ...any) error {
	return &sandbox.Error{
		Kind: sandbox.KindInvalid, Op: "check image", Subject: "python",
		Err:  sandbox.Errorf("", "", "", format, args...).Err,
		Mend: "use an image with CPython 3." + strconv.Itoa(oldest) + " or newer and its full standard library",
	}
}

// findPython fills in what a tree has of Python. It looks at files only: nothing
// of an image runs outside a sandbox.
func findPython(t *unpack.Tree, r *Record, preload []string) error {
	program, minor, err := findInterpreter(t)
	if err != nil {
		return err
	}
	r.Interpreter = "/" + program
	prefix := path.Dir(path.Dir(program))
	if err := checkProgram(t, program, r.Arch); err != nil {
		return err
	}
	if err := findLibrary(t, r, prefix, minor); err != nil {
		return err
	}
	r.PythonVersion = findVersion(t, minor, program, path.Join(prefix, "lib", "libpython3."+minor+".so.1.0"))
	r.SitePackages = findSite(t, prefix, minor)
	for _, name := range append([]string{r.Interpreter, r.Stdlib, r.Ctypes}, r.SitePackages...) {
		if strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
			return noPython("the path %q has characters that cannot be shown", name)
		}
	}
	for _, module := range preload {
		if hasModule(t, r.SitePackages, module) {
			r.Preload = append(r.Preload, module)
		}
	}
	return nil
}

// findInterpreter takes the version that python3 leads to, else the newest.
func findInterpreter(t *unpack.Tree) (program, minor string, err error) {
	for _, dir := range programDirs {
		if real, e, err := t.Resolve(path.Join(dir, "python3")); err == nil && e.Kind == unpack.File {
			if m := interpreterName.FindStringSubmatch(path.Base(real)); m != nil {
				return real, m[1], checkMinor(real, m[1])
			}
		}
		newest := -1
		for _, name := range t.Names(dir) {
			m := interpreterName.FindStringSubmatch(name)
			if m == nil {
				continue
			}
			real, e, err := t.Resolve(path.Join(dir, name))
			if n, _ := strconv.Atoi(m[1]); err == nil && e.Kind == unpack.File && n > newest {
				program, minor, newest = real, m[1], n
			}
		}
		if newest >= 0 {
			return program, minor, checkMinor(program, minor)
		}
	}
	return "", "", noPython("no interpreter: neither /%s nor /%s has a python3.X", programDirs[0], programDirs[1])
}

func checkMinor(program, minor string) error {
	if n, err := strconv.Atoi(minor); err != nil || n < oldest {
		return noPython("/%s is older than 3.%d", program, oldest)
	}
	return nil
}

// checkProgram refuses an interpreter that cannot start here.
func checkProgram(t *unpack.Tree, program, arch string) error {
	if _, e, err := t.Resolve(program); err != nil || !e.Executable {
		return noPython("/%s may not be executed by others than its owner", program)
	}
	f, err := t.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	p, err := images.ReadProgram(f)
	switch {
	case err != nil:
		return noPython("/%s is no program: %w", program, err)
	case p.Arch != arch:
		return noPython("/%s is for %s; %s is needed", program, p.Arch, arch)
	case p.Loader == "":
		return nil
	}
	if !isOpen(t, p.Loader) {
		return noPython("/%s needs the loader %s, which is not in the image or closed to others", program, p.Loader)
	}
	return nil
}

// findLibrary finds the standard library and, in it, the module by which the
// guest makes system calls.
func findLibrary(t *unpack.Tree, r *Record, prefix, minor string) error {
	for _, lib := range []string{"lib", "lib64"} {
		dir := path.Join(prefix, lib, "python3."+minor)
		if _, _, err := t.Resolve(path.Join(dir, "os.py")); err != nil {
			continue
		}
		real, _, err := t.Resolve(dir)
		if err != nil {
			return err
		}
		if !isOpen(t, path.Join(dir, "os.py")) {
			return noPython("the standard library at /%s may not be read by others than its owner", real)
		}
		r.Stdlib = "/" + real
		for _, name := range t.Names(path.Join(dir, "lib-dynload")) {
			if strings.HasPrefix(name, "_ctypes.") && strings.HasSuffix(name, ".so") && isOpen(t, path.Join(dir, "lib-dynload", name)) {
				r.Ctypes = path.Join(r.Stdlib, "lib-dynload", name)
				return nil
			}
		}
		return noPython("the standard library at %s has no lib-dynload/_ctypes*.so that others may read", r.Stdlib)
	}
	return noPython("no standard library: /%s/lib/python3.%s/os.py is missing", prefix, minor)
}

// findSite lists the directories of packages that site.py would use.
func findSite(t *unpack.Tree, prefix, minor string) []string {
	var out []string
	seen := map[string]bool{}
	for _, dir := range []string{
		"usr/local/lib/python3." + minor + "/dist-packages", "usr/lib/python3/dist-packages", // Debian's
		prefix + "/lib/python3." + minor + "/site-packages", prefix + "/lib64/python3." + minor + "/site-packages",
	} {
		real, e, err := t.Resolve(dir)
		// Debian's are its own interpreter's.
		if strings.HasSuffix(dir, "dist-packages") && prefix != "usr" {
			continue
		}
		if err == nil && e.Kind == unpack.Dir && e.Readable && e.Executable && !seen[real] {
			seen[real] = true
			out = append(out, "/"+real)
		}
	}
	return out
}

func hasModule(t *unpack.Tree, site []string, module string) bool {
	for _, dir := range site {
		for _, name := range []string{module + "/__init__.py", module + ".py"} {
			if isOpen(t, path.Join(dir, name)) {
				return true
			}
		}
	}
	return false
}

// isOpen tells whether there is a file that programs may read.
func isOpen(t *unpack.Tree, name string) bool {
	_, e, err := t.Resolve(name)
	return err == nil && e.Kind == unpack.File && e.Readable
}

// findVersion looks for the text that sys.version begins with, in the program or
// its library. Without it the version is known by two numbers.
func findVersion(t *unpack.Tree, minor string, names ...string) string {
	pattern := regexp.MustCompile(`\x00(3\.` + minor + `\.\d{1,3}(?:[abc]\d+|rc\d+|\+)?)\x00`)
	for _, name := range names {
		real, e, err := t.Resolve(name)
		if err != nil || e.Kind != unpack.File {
			continue
		}
		f, err := t.Open(real)
		if err != nil {
			continue
		}
		found := scan(f, pattern)
		_ = f.Close()
		if found != "" {
			return found
		}
	}
	return "3." + minor
}

// maxScan bounds what is read of a program; the largest have some 100 MiB.
const maxScan = 256 << 20

// scan finds the first match, which may lie across two reads.
func scan(f *os.File, pattern *regexp.Regexp) string {
	const overlap = 64
	r := io.LimitReader(f, maxScan)
	buffer := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(r, buffer[kept:])
		text := buffer[:kept+n]
		if m := pattern.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		if err != nil { // the end, or what a reader of the image would meet as well
			return ""
		}
		kept = copy(buffer, text[len(text)-overlap:])
	}
}
