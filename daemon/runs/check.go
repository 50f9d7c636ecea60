package runs

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Bounds on what is no limit of the program but has to end somewhere.
const (
	maxArgs        = 256
	maxFiles       = 1024
	maxPath        = 1024
	maxName        = 255 // NAME_MAX of every file system in use
	maxPatterns    = 64
	maxPattern     = 256
	maxLabels      = 64
	maxLabelKey    = 128
	maxLabelValue  = 1024
	defaultMode    = "0644"
	nulByte        = "\x00"
	fieldArgs      = "args"
	fieldLabels    = "labels"
	fieldWorkspace = "limits.workspace_bytes"
)

func invalid(subject, format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.KindInvalid, "admit", subject, format, args...)
}

// checkInput checks the parts of a spec that are data, and gives a copy in
// which the files name their encoding and mode.
func checkInput(spec *sandbox.Spec, mode sandbox.Mode, limits sandbox.Limits) (*sandbox.Spec, error) {
	if err := checkArgs(spec.Args, mode); err != nil {
		return nil, err
	}
	if err := checkCollect(spec.Collect); err != nil {
		return nil, err
	}
	if err := checkLabels(spec.Labels); err != nil {
		return nil, err
	}
	files, err := checkFiles(spec.Files, limits)
	if err != nil {
		return nil, err
	}
	checked := *spec
	checked.Files = files
	return &checked, nil
}

func checkArgs(args []string, mode sandbox.Mode) error {
	if len(args) > 0 && mode != sandbox.ModeScript {
		return invalid(fieldArgs, "arguments are for a program; solution and tests take none")
	}
	if len(args) > maxArgs {
		return invalid(fieldArgs, "%d arguments are more than %d", len(args), maxArgs)
	}
	for i, a := range args {
		if strings.Contains(a, nulByte) {
			return invalid(fmt.Sprintf("args[%d]", i), "an argument cannot hold a NUL byte")
		}
	}
	return nil
}

func checkCollect(patterns []string) error {
	if len(patterns) > maxPatterns {
		return invalid("collect", "%d patterns are more than %d", len(patterns), maxPatterns)
	}
	for i, p := range patterns {
		field := fmt.Sprintf("collect[%d]", i)
		if p == "" || len(p) > maxPattern || strings.Contains(p, nulByte) {
			return invalid(field, "a pattern has 1 to %d bytes and no NUL", maxPattern)
		}
		if !fs.ValidPath(p) || p == "." {
			return invalid(field, "a pattern is a relative path without empty, . or .. parts")
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid(fieldLabels, "%d labels are more than %d", len(labels), maxLabels)
	}
	for k, v := range labels {
		if k == "" || len(k) > maxLabelKey {
			return invalid(fieldLabels, "a label's name has 1 to %d bytes", maxLabelKey)
		}
		if strings.Contains(k, nulByte) || strings.Contains(v, nulByte) {
			return invalid(fieldLabels, "a label cannot hold a NUL byte")
		}
		if len(v) > maxLabelValue {
			return invalid(fieldLabels+"."+k, "a label's value has at most %d bytes", maxLabelValue)
		}
	}
	return nil
}

// tree follows which names the files take, so that no file is written twice
// and none is also a directory.
type tree struct {
	files map[string]bool
	dirs  map[string]bool
}

func (t *tree) add(path string) error {
	for i, c := range path {
		if c == '/' {
			if t.files[path[:i]] {
				return fmt.Errorf("%s is a file already", path[:i])
			}
			t.dirs[path[:i]] = true
		}
	}
	if t.files[path] {
		return fmt.Errorf("%s is given twice", path)
	}
	if t.dirs[path] {
		return fmt.Errorf("%s is a directory already", path)
	}
	t.files[path] = true
	return nil
}

func (t *tree) inodes() int64 { return int64(len(t.files) + len(t.dirs)) }

func checkFiles(files []sandbox.File, limits sandbox.Limits) ([]sandbox.File, error) {
	if len(files) > maxFiles {
		return nil, invalid("files", "%d files are more than %d", len(files), maxFiles)
	}
	t := tree{files: map[string]bool{}, dirs: map[string]bool{}}
	checked := make([]sandbox.File, 0, len(files))
	var total int64
	for i, f := range files {
		field := fmt.Sprintf("files[%d]", i)
		if err := checkPath(f.Path); err != nil {
			return nil, invalid(field+".path", "%w", err)
		}
		if err := t.add(f.Path); err != nil {
			return nil, invalid(field+".path", "%w", err)
		}
		size, err := settle(&f)
		if err != nil {
			return nil, invalid(field+"."+err.field, "%s", err.text)
		}
		if total += size; total > limits.WorkspaceBytes {
			return nil, invalid(field+".content", "the files are larger than %s (%d)", fieldWorkspace, limits.WorkspaceBytes)
		}
		checked = append(checked, f)
	}
	if n := t.inodes(); n > limits.WorkspaceInodes {
		return nil, invalid("files", "%d files and directories are more than limits.workspace_inodes (%d)", n, limits.WorkspaceInodes)
	}
	return checked, nil
}

func checkPath(path string) error {
	switch {
	case strings.Contains(path, nulByte):
		return fmt.Errorf("a path cannot hold a NUL byte")
	case len(path) > maxPath:
		return fmt.Errorf("a path has at most %d bytes", maxPath)
	case !fs.ValidPath(path) || path == ".":
		return fmt.Errorf("a path is relative to the workspace, without empty, . or .. parts")
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxName {
			return fmt.Errorf("a name within a path has at most %d bytes", maxName)
		}
	}
	return nil
}

type fileError struct{ field, text string }

// settle fills in f's defaults and gives its size in bytes.
func settle(f *sandbox.File) (int64, *fileError) {
	switch f.Mode {
	case "":
		f.Mode = defaultMode
	case "0644", "0755", "0600", "0444":
	default:
		return 0, &fileError{"mode", "is none of 0644, 0755, 0600, 0444"}
	}
	switch f.Encoding {
	case "", sandbox.EncodingUTF8:
		f.Encoding = sandbox.EncodingUTF8
		return int64(len(f.Content)), nil
	case sandbox.EncodingBase64:
		raw, err := base64.StdEncoding.Strict().DecodeString(f.Content)
		if err != nil {
			return 0, &fileError{"content", "is no base64 of the standard alphabet with padding"}
		}
		if strings.ContainsAny(f.Content, "\r\n") { // decoders differ about line ends
			f.Content = base64.StdEncoding.EncodeToString(raw)
		}
		return int64(len(raw)), nil
	}
	return 0, &fileError{"encoding", "is neither utf-8 nor base64"}
}
