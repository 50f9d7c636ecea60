package images

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
)

// Bounds on ld.so.conf: real ones have some ten files and lines.
const (
	maxConfBytes = 64 << 10
	maxConfDepth = 4
	maxConfDirs  = 256
)

// triplets name Debian's multiarch directories, which its loader has built in.
var triplets = map[elf.Machine]string{
	elf.EM_X86_64:  "x86_64-linux-gnu",
	elf.EM_AARCH64: "aarch64-linux-gnu",
}

// defaultDirs are the directories that the loader searches without a cache, those
// that exist (ld.so(8); Debian's multiarch directories come first).
func defaultDirs(root string, machine elf.Machine) []string {
	candidates := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	if triplet, ok := triplets[machine]; ok {
		candidates = append([]string{"/lib/" + triplet, "/usr/lib/" + triplet}, candidates...)
	}
	var out []string
	for _, dir := range candidates {
		if info, err := os.Stat(root + dir); err == nil && info.IsDir() {
			out = append(out, dir)
		}
	}
	return out
}

// confDirs are the directories of ld.so.conf, which the loader knows by its cache
// (ldconfig(8)).
func confDirs(root string) []string { return readConf(root, "/etc/ld.so.conf", 0) }

func readConf(root, path string, depth int) []string {
	if depth > maxConfDepth {
		return nil
	}
	data, err := os.ReadFile(root + path)
	if err != nil || len(data) > maxConfBytes {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			dirs = append(dirs, includeConf(root, path, fields[1], depth)...)
		case len(fields) == 1 && filepath.IsAbs(fields[0]):
			dirs = append(dirs, filepath.Clean(fields[0]))
		}
	}
	return dirs[:min(len(dirs), maxConfDirs)]
}

// includeConf reads the files of an include line, whose pattern may be relative
// to the including file.
func includeConf(root, from, pattern string, depth int) []string {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	files, err := filepath.Glob(root + pattern)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, readConf(root, strings.TrimPrefix(file, root), depth+1)...)
	}
	return dirs
}
