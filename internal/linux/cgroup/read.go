//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// statBytes is more than any file read here: memory.events has seven lines,
// cpu.stat at most twenty.
const statBytes = 4096

// readAt reads an open cgroup file from its start; the kernel makes the content
// anew for each such read (kernfs, seq_file).
func readAt(f *os.File) ([]byte, error) {
	buf := make([]byte, statBytes)
	n, err := unix.Pread(int(f.Fd()), buf, 0) // once: ReadAt would ask again for the end
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return bytes.TrimSpace(buf[:n]), nil
}

// parseInt reads a file's only number. "max" is not a number here.
func parseInt(data []byte) (int64, error) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cgroup file: %w", err)
	}
	return n, nil
}

// parseKey reads the number behind key in a file of "key number" lines.
func parseKey(data []byte, key string) (int64, error) {
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, " "); ok && name == key {
			return parseInt([]byte(value))
		}
	}
	return 0, fmt.Errorf("cgroup file: no line %q", key)
}

// parsePids reads one process id a line.
func parsePids(data []byte) ([]int, error) {
	var pids []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("cgroup file: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func readInt(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return parseInt(data)
}

func readPids(path string) ([]int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parsePids(data)
}

// write writes to a file that exists; cgroup files are never made.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
