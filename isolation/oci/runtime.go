package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// The runtimes, which also are the engines' names.
const (
	Runc  = "runc"
	Crun  = "crun"
	Runsc = "runsc"
)

// Names lists the runtimes, strongest boundary first.
func Names() []string { return []string{Runsc, Crun, Runc} }

// traits are what differs between runtimes.
type traits struct {
	name  string
	least string   // version that all of this was tested with; older ones are refused
	flags []string // of every call
	// unhybrid: it refuses to run where cgroups are hybrid, so it is not shown that
	// they are.
	unhybrid bool
	// ownKernel: programs speak with a kernel in user space. What the host's holds
	// for them otherwise is held by that one, or not at all.
	ownKernel bool
	// leastTasks is what the runtime's own threads need of the pids limit.
	leastTasks int64
}

func runtimes() []traits {
	return []traits{
		{name: Runc, least: "1.1.5"},
		{name: Crun, least: "1.8.1", unhybrid: true},
		{
			// ptrace is the one platform that needs no hardware and works everywhere.
			name: Runsc, least: "20221219", flags: []string{"--platform=ptrace", "--network=none"},
			ownKernel: true, leastTasks: isolation.OwnKernelTasks,
		},
	}
}

func traitsOf(name string) (traits, error) {
	for _, t := range runtimes() {
		if t.name == name {
			return t, nil
		}
	}
	return traits{}, fmt.Errorf("no runtime is called %q; known: %s", name, strings.Join(Names(), ", "))
}

// places are where a runtime is looked for. PATH is not asked: it is whoever's
// started the daemon.
func places() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// find gives the runtime's program.
func (c *Config) find() (string, error) {
	if c.Program != "" {
		_, err := os.Stat(c.Program)
		return c.Program, err
	}
	for _, dir := range places() {
		path := filepath.Join(dir, c.Runtime)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &sandbox.Error{
		Kind: sandbox.KindUnavailable, Op: "find runtime", Subject: c.Runtime,
		Err: errors.New("it is not installed"), Mend: "apt-get install " + c.Runtime,
	}
}

// version is a runtime's, in the numbers that its text has.
type version []int

func (v version) String() string {
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// Runtimes say "runc version 1.1.5+ds1", "crun version 1.8.1", "runsc version
// release-20221219.0", and Debian's runsc "0.0~20221219.0".
var (
	dateVersion  = regexp.MustCompile(`\b(20\d{6})(?:\.(\d+))?\b`)
	pointVersion = regexp.MustCompile(`\b(\d+)\.(\d+)(?:\.(\d+))?`)
)

// parseVersion reads the first version in a text.
func parseVersion(text string) (version, error) {
	line, _, _ := strings.Cut(text, "\n")
	match := dateVersion.FindStringSubmatch(line)
	if match == nil {
		match = pointVersion.FindStringSubmatch(line)
	}
	if match == nil {
		return nil, fmt.Errorf("no version in %.100q", line)
	}
	var v version
	for _, part := range match[1:] {
		n, err := strconv.Atoi(part)
		if part != "" && err != nil {
			return nil, fmt.Errorf("version in %.100q: %w", line, err)
		}
		v = append(v, n)
	}
	return v, nil
}

// found is the runtime of this host.
type found struct {
	program string
	version version
}

// inspect finds the runtime and refuses one that is too old.
func (e *Engine) inspect(ctx context.Context) (found, error) {
	program, err := e.cfg.find()
	if err != nil {
		return found{}, err
	}
	text, err := e.call(ctx, program, "--version")
	if err != nil {
		return found{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	v, err := parseVersion(text)
	if err != nil {
		return found{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	least, err := parseVersion(e.cfg.least(e.traits))
	if err != nil {
		return found{}, err
	}
	if slices.Compare(v, least) < 0 {
		return found{}, &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "find runtime", Subject: program,
			Err:  fmt.Errorf("version %s is older than %s", v, least),
			Mend: fmt.Sprintf("install a newer one, or set engine.oci.min_version.%s", e.cfg.Runtime),
		}
	}
	return found{program, v}, nil
}
