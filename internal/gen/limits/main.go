// Command limits writes docs/limits.md from the vocabulary: every limit with its
// unit, default, ceiling and how each engine holds it.
package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

//go:generate go run . ../../../docs/limits.md

// held says how a limit is held: by native, and by process.
type held struct{ native, process string }

// enforcement has a row for each limit; one that is missing fails the generator,
// so that a new limit cannot go without.
var enforcement = map[string]held{
	"wall_ms":           {"the daemon's clock, then kill of the whole sandbox", "the same"},
	"cpu_ms":            {"cgroup account of the whole tree, polled by the daemon; `RLIMIT_CPU` behind it", "account of the process tree, polled; `RLIMIT_CPU` behind it"},
	"memory_bytes":      {"memory cgroup without swap; `RLIMIT_DATA` first, so that Python can raise `MemoryError`", "`RLIMIT_AS` for each process"},
	"processes":         {"system call filter when 0; pids cgroup and `RLIMIT_NPROC` above", "system call filter when 0; **a request that names it is refused**"},
	"threads":           {"pids cgroup and `RLIMIT_NPROC` of a host uid of its own", "`RLIMIT_NPROC` when run by root; **refused** otherwise"},
	"open_files":        {"`RLIMIT_NOFILE`", "the same"},
	"file_bytes":        {"`RLIMIT_FSIZE`", "the same"},
	"workspace_bytes":   {"size of the tmpfs; its pages count as memory too", "**a request that names it is refused**"},
	"workspace_inodes":  {"inodes of the tmpfs", "**a request that names it is refused**"},
	"output_bytes":      {"supervisor and daemon keep head and tail, drain and count the rest", "the same"},
	"output_stop_bytes": {"the supervisor's count, then kill of the whole sandbox", "the same"},
	"artifact_bytes":    {"supervisor, checked by the daemon", "the same"},
	"artifact_count":    {"supervisor, checked by the daemon", "the same"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: limits FILE")
		os.Exit(2)
	}
	text, err := render()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func render() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(head)
	defaults, ceilings := sandbox.DefaultLimits(), sandbox.DefaultCeilings()
	def, ceil := defaults.Fields(), ceilings.Fields()
	for i, f := range def {
		how, ok := enforcement[f.Name]
		if !ok {
			return nil, fmt.Errorf("say in internal/gen/limits how %s is held", f.Name)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", f.Name, docOf(f.Name), unitOf(f.Name),
			number(f.Name, *f.Value), number(f.Name, f.Floor), number(f.Name, *ceil[i].Value), how.native, how.process)
	}
	if len(enforcement) != len(def) {
		return nil, fmt.Errorf("internal/gen/limits speaks of %d limits, there are %d", len(enforcement), len(def))
	}
	out.WriteString(tail)
	return out.Bytes(), nil
}

const head = `<!-- Written by internal/gen/limits (make gen); do not edit. -->

# Limits of a run

A request names limits under ` + "`limits`" + ` by these names; all are integers. What it does not name takes the default. A value below the floor or over the ceiling is refused, and so is a limit that the chosen engine cannot hold on this host. A default that it cannot hold is listed in the result's ` + "`unenforced`" + `. Defaults and ceilings are those of a daemon without configuration: ` + "`[limits.defaults]` and `[limits.ceilings]`" + ` change them.

| limit | what it caps | unit | default | floor | ceiling | how native holds it | how process holds it |
|---|---|---|---|---|---|---|---|
`

const tail = `
Not configurable: a request body of 8 MiB; no core dumps; 8 MiB of stack; 64 KiB of locked memory; no POSIX message queues; no swap.
`

// docOf is the text that the API's description has, too.
func docOf(name string) string {
	for f := range reflect.TypeFor[sandbox.Limits]().Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Tag.Get("doc")
		}
	}
	return ""
}

func unitOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_ms"):
		return "milliseconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	}
	return "number"
}

func number(name string, n int64) string {
	switch {
	case n == 0 && name != "processes":
		return "off"
	case unitOf(name) != "bytes" || n < 1<<10:
		return fmt.Sprint(n)
	}
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%u.size == 0 {
			return fmt.Sprintf("%d (%d %s)", n, n/u.size, u.name)
		}
	}
	return fmt.Sprint(n)
}
