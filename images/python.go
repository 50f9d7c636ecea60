package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// askTimeout bounds the interpreter's answer; it takes about 20 ms.
const askTimeout = 30 * time.Second

// answerBytes bounds what is read of the answer.
const answerBytes = 1 << 20

// question runs under -I -S, so neither the environment nor site packages have a
// say in it.
const question = `
import json, os, sys, sysconfig, site
try:
    import _ctypes
    ctypes_error = ""
except ImportError as error:
    ctypes_error = str(error)
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:3]),
    "stdlib": os.path.dirname(os.__file__),
    "platstdlib": sysconfig.get_path("platstdlib"),
    "path": sys.path,
    "site": site.getsitepackages(),
    "ctypes_error": ctypes_error,
}))
`

// interpreter is what an interpreter says of itself.
type interpreter struct {
	Implementation string   `json:"implementation"`
	Version        [3]int   `json:"version"`
	Stdlib         string   `json:"stdlib"`
	PlatStdlib     string   `json:"platstdlib"`
	Path           []string `json:"path"`
	Site           []string `json:"site"`
	CtypesError    string   `json:"ctypes_error"`
}

// ask starts the interpreter and checks that the guest can run on it.
func ask(ctx context.Context, python string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-c", question)
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	cmd.Dir = "/"
	var out, errs capped
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return interpreter{}, fmt.Errorf("ask %s: %w: %s", python, err, errs.lastLine())
	}
	var answer interpreter
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return interpreter{}, fmt.Errorf("ask %s: %w", python, err)
	}
	return answer, answer.check()
}

// check refuses what the guest can't run on.
func (i interpreter) check() error {
	switch {
	case i.Implementation != "cpython":
		return fmt.Errorf("interpreter is %q; CPython is needed", i.Implementation)
	case i.Version[0] != 3 || i.Version[1] < 9:
		return fmt.Errorf("interpreter is Python %s; 3.9 or newer is needed", i.version())
	case i.CtypesError != "":
		return fmt.Errorf("interpreter has no _ctypes (%s); install the full standard library", i.CtypesError)
	case !filepath.IsAbs(i.Stdlib):
		return fmt.Errorf("interpreter names no standard library: %q", i.Stdlib)
	}
	return nil
}

func (i interpreter) version() string {
	return fmt.Sprintf("%d.%d.%d", i.Version[0], i.Version[1], i.Version[2])
}

// libraryDirs are the directories, and a zip file, of the standard library that
// exist, each once and without symbolic links.
func (i interpreter) libraryDirs() []string {
	return existing(append([]string{i.Stdlib, i.PlatStdlib}, i.Path...))
}

// siteDirs are the site-packages directories that exist.
func (i interpreter) siteDirs() []string { return existing(i.Site) }

func existing(paths []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || !filepath.IsAbs(real) || seen[real] {
			continue
		}
		seen[real] = true
		out = append(out, real)
	}
	return out
}

// resolve follows the links to the interpreter and refuses virtual environments:
// their interpreter is a link out of them, so that their packages would be lost
// silently.
func resolve(python string) (string, error) {
	if !filepath.IsAbs(python) {
		return "", fmt.Errorf("interpreter %q is not an absolute path", python)
	}
	config := filepath.Join(filepath.Dir(filepath.Dir(python)), "pyvenv.cfg")
	if _, err := os.Stat(config); err == nil {
		return "", fmt.Errorf("interpreter %s belongs to a virtual environment (%s); name its base interpreter", python, config)
	}
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", fmt.Errorf("find interpreter: %w", err)
	}
	return real, nil
}

// capped keeps the first answerBytes of a stream.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > answerBytes {
		return 0, errors.New("answer is too long")
	}
	return c.Buffer.Write(p)
}

func (c *capped) lastLine() string {
	text := strings.TrimSpace(c.String())
	return text[strings.LastIndexByte(text, '\n')+1:]
}
