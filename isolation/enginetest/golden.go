package enginetest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// updateEnv rewrites the goldens instead of comparing.
const updateEnv = "SANDBOXD_UPDATE_GOLDEN"

// posture: a program sees exactly the confinement that was reviewed.
func (s suite) posture(t *testing.T) {
	if s.opts.Golden == "" {
		t.Fatal("the engine's test names no golden file")
	}
	p := newPlan(t, sandbox.Limits{})
	sb, err := s.engine.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	seen, err := isolation.LookInside(t.Context(), sb, p.Limits)
	if err != nil {
		t.Fatal(err)
	}
	got := postureText(seen)
	if os.Getenv(updateEnv) != "" {
		if err := os.WriteFile(s.opts.Golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(s.opts.Golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the posture changed (-want +got); set %s=1 to accept it:\n%s", updateEnv, diff)
	}
}

// setLimits are the limits that a sandbox sets; others are the host's.
var setLimits = []string{
	"RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK",
	"RLIMIT_MSGQUEUE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_SIGPENDING", "RLIMIT_STACK",
}

// changing are the parts of a posture that differ from run to run or from
// machine to machine.
var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`/[^ ]*test_\d+`), "SCRATCH"},
	{regexp.MustCompile(`\b(uid|gid)=\d+`), "$1=N"},
	{regexp.MustCompile(`^(status Groups): \d+$`), "$1: N"},
	{regexp.MustCompile(`,(lowerdir|upperdir|workdir)=[^,\n]*`), ",$1"},
	{regexp.MustCompile(`,(size|nr_inodes|mode|uid|gid|inode64|huge|noswap)\b[^,\n]*`), ""},
}

// postureText is a posture as lines, without what changes from run to run.
func postureText(p isolation.Posture) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		for _, c := range changing {
			text = c.pattern.ReplaceAllString(text, c.with)
		}
		b.WriteString(text + "\n")
	}
	for _, k := range sorted(p.Status) {
		switch value := p.Status[k]; {
		case k == "Uid" || k == "Gid":
		case k == "CapBnd" && strings.Trim(value, "0") != "": // what an engine does not drop differs between hosts
			line("status CapBnd: (the host's)")
		default:
			line("status %s: %s", k, strings.TrimSpace(value))
		}
	}
	line("process: sid_is_own %v, dumpable %d", p.SIDIsOwn, p.Dumpable)
	line("host name: %s", hostname(p))
	line("working directory: %s", p.Cwd)
	for _, k := range sorted(p.Environment) {
		line("environment %s=%s", k, p.Environment[k])
	}
	for _, k := range sorted(p.Descriptors) {
		line("descriptor %s: %s", k, p.Descriptors[k])
	}
	for _, k := range setLimits {
		line("%s: %d %d", k, p.Rlimits[k][0], p.Rlimits[k][1])
	}
	for _, k := range sorted(p.Attempts) {
		line("attempt %s: %s", k, p.Attempts[k])
	}
	line("writable: %s", strings.Join(p.Writable, " "))
	if p.PID < 100 { // a pid namespace of its own
		line("pid %s, parent %d, visible %s", pidText(p, p.PID), p.PPID, pidTexts(p))
		line("ids: inside %s", strings.Join(p.UIDMap[:1], " "))
		line("cgroup: %s", strings.Join(roots(p.Cgroup), " "))
		line("root: %s", strings.Join(p.RootEntries, " "))
		line("proc: %s", strings.Join(p.ProcEntries, " "))
		for _, k := range sorted(p.Space) {
			if s := p.Space[k]; s != nil {
				line("space %s: %d bytes, %d inodes", k, s.Bytes, s.Inodes)
			}
		}
		// In the order in which one covers another, and no other: engines differ.
		byTarget := func(a, b isolation.PostureMount) int { return strings.Compare(a.Target, b.Target) }
		for _, m := range slices.SortedStableFunc(slices.Values(p.Mounts), byTarget) {
			if ours(m) {
				line("mount %s %s %s %s", m.Target, m.Type, strings.Join(m.Options, ","), strings.Join(m.Super, ","))
			}
		}
	}
	return b.String()
}

// pidText: a container runtime's own threads come before the program, and are not
// always as many.
func pidText(p isolation.Posture, pid int) string {
	if pid == p.PID && pid > 2 {
		return "its own"
	}
	return strconv.Itoa(pid)
}

func pidTexts(p isolation.Posture) []string {
	var out []string
	for _, pid := range p.PIDs {
		out = append(out, pidText(p, pid))
	}
	return out
}

// hostname: a host's own name is nobody's golden.
func hostname(p isolation.Posture) string {
	if p.Hostname == isolation.Hostname {
		return p.Hostname
	}
	return "(the host's)"
}

// roots are the paths of a cgroup file: all "/" inside a namespace.
func roots(lines []string) []string {
	var out []string
	for _, l := range lines {
		_, path, _ := strings.Cut(l, ":")
		out = append(out, path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ours: the image's own mounts differ from machine to machine; what the engine
// adds must not.
func ours(m isolation.PostureMount) bool {
	return m.Target == "/" || m.Target == "/proc" || m.Target == "/tmp" ||
		m.Target == isolation.Workspace || m.Target == "/dev/shm"
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) && isNumber(a) && isNumber(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return keys
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
