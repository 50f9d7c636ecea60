package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandboxd/sandboxd/internal/testenv"
)

// TestCases_OwnHold drives the engines with the committed cases. On process the
// runner lists what that engine does not claim, and nothing else may fail.
func TestCases_OwnHold(t *testing.T) {
	testenv.Cgroup(t)
	for _, engine := range []string{"native", "process"} {
		t.Run(engine, func(t *testing.T) {
			runner(t, "internal/cases", "internal/cases/testdata/own.jsonl", "--engine", engine)
		})
	}
}

func TestHumanEval_OwnProblems(t *testing.T) {
	testenv.Cgroup(t)
	runner(t, "internal/cases/humaneval.py", "internal/cases/testdata/own-humaneval.jsonl")
}

// runner runs one of the Python runners, which count in their last line.
func runner(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"-B"}, args...)
	cmd := exec.CommandContext(t.Context(), testenv.Python(t), append(args, "--build", bin)...)
	cmd.Dir = repo()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?m)^[1-9]\d* passed, 0 failed\n\z`).Match(out) {
		t.Errorf("its last line counts no pass:\n%s", out)
	}
}

func TestDemo_ShowsVerdictsAndLayers(t *testing.T) {
	testenv.Cgroup(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(repo(), "examples", "demo.sh"))
	cmd.Env = append(os.Environ(), "SANDBOXD_BIN="+bin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"passed", "forty is fifty less ten", "ValueError", "native", "read_only_rootfs", "held"} {
		if !regexp.MustCompile(regexp.QuoteMeta(want)).Match(out) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
}
