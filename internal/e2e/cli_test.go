package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/sandbox"
)

// ctl runs sandboxctl against the daemon.
func (d *daemon) ctl(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sandboxctl"), args...)
	cmd.Dir = repo()
	cmd.Env = append(os.Environ(), "SANDBOXD_SOCKET="+d.socket)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestCLI_ExitCodesTellTheVerdict(t *testing.T) {
	testenv.Cgroup(t)
	d := newPlace(t, "").start(t)
	for name, c := range map[string]struct {
		args  []string
		stdin string
		code  int
		says  string
	}{
		"passes":          {[]string{"run", "examples/intervals/solution.py", "--tests", "examples/intervals/tests.py"}, "", 0, "passed"},
		"assertion fails": {[]string{"run", "examples/roman/solution.py", "--tests", "examples/roman/tests.py"}, "", 1, "forty is fifty less ten"},
		"raises":          {[]string{"run", "examples/parse/solution.py", "--tests", "examples/parse/tests.py"}, "", 1, "ValueError"},
		"from stdin":      {[]string{"run", "-", "--tests", "examples/intervals/tests.py"}, "merge = lambda i: i\n", 1, "failed"},
		"script":          {[]string{"exec", "-"}, "print(6 * 7)\n", 0, "42"},
		"script fails":    {[]string{"exec", "-"}, "raise SystemExit(3)\n", 1, ""},
		"usage":           {[]string{"run", "--no-such-flag"}, "", 2, "no-such-flag"},
		"unknown engine":  {[]string{"exec", "-", "--engine", "steam"}, "pass\n", 3, "steam"},
		"doctor":          {[]string{"doctor"}, "", 0, "net_ns"},
		"info":            {[]string{"info"}, "", 0, "native"},
		"ps":              {[]string{"ps"}, "", 0, ""},
		"version":         {[]string{"version"}, "", 0, ""},
		"kill a stranger": {[]string{"kill", "run_nosuchrun"}, "", 3, "run_nosuchrun"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := d.ctl(t, c.stdin, c.args...)
			if code != c.code || !strings.Contains(stdout+stderr, c.says) {
				t.Errorf("exit %d, want %d and %q\n%s%s", code, c.code, c.says, stdout, stderr)
			}
		})
	}
}

func TestCLI_NoDaemonIsExitThree(t *testing.T) {
	d := &daemon{place: place{socket: filepath.Join(t.TempDir(), "nobody")}}
	if code, _, stderr := d.ctl(t, "", "info"); code != 3 || stderr == "" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// TestCLI_JSONIsTheResult reads what scripts read.
func TestCLI_JSONIsTheResult(t *testing.T) {
	testenv.Cgroup(t)
	d := newPlace(t, "").start(t)
	code, stdout, stderr := d.ctl(t, "", "run", "examples/roman/solution.py", "--tests", "examples/roman/tests.py", "--json")
	var res sandbox.Result
	if err := json.Unmarshal([]byte(stdout), &res); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if code != 1 || res.Verdict != sandbox.Failed || res.PassedCount != 3 || res.TotalCount != 4 || res.Engine != "native" {
		t.Errorf("exit %d, %s, %d of %d by %s", code, res.Verdict, res.PassedCount, res.TotalCount, res.Engine)
	}
	if len(res.Failures) != 1 || res.Failures[0].Line != 3 || res.Failures[0].Left == nil || *res.Failures[0].Left != "'XXXX'" {
		t.Errorf("failures %+v", res.Failures)
	}
	for _, l := range res.Layers {
		if l.State == sandbox.LayerMissing {
			t.Errorf("layer %s is missing: %s", l.Layer, l.Reason)
		}
	}
}
