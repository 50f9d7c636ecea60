package enginetest

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Options say what is special about an engine.
type Options struct {
	// Golden is the file with the posture that programs must see.
	Golden string
	// Quick leaves the hostile corpus out, where another test runs it on the same
	// engine and time is short.
	Quick bool
	// Unheld names programs of the suite that this engine is known not to hold, with
	// the reason. They are run all the same: one that it holds is an error.
	Unheld map[string]string
}

// Run holds the engine that open makes to the contract.
func Run(t *testing.T, e isolation.Engine, o Options) {
	support, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !support.Usable {
		t.Fatalf("engine %s is not usable here: %s", e.Name(), support.Reason)
	}
	s := suite{engine: e, support: support, opts: o, slow: slowness(t)}
	t.Run("Support", s.complete)
	t.Run("Verdicts", s.verdicts)
	t.Run("Files", s.files)
	t.Run("Collecting", s.collecting)
	t.Run("Output", s.output)
	t.Run("RefusesMissingLayer", s.refusesMissingLayer)
	t.Run("KillEndsEverything", s.killEndsEverything)
	t.Run("Concurrent", s.concurrent)
	t.Run("TestsStayHidden", s.testsStayHidden)
	t.Run("Posture", s.posture)
	if !o.Quick {
		t.Run("Hostile", s.hostile)
	}
}

type suite struct {
	engine  isolation.Engine
	support isolation.Support
	opts    Options
	slow    int64 // stretches time limits
}

// slowEnv holds how many times slower than usual an emulated machine is.
const slowEnv = "SANDBOXD_SLOW"

func slowness(t *testing.T) int64 {
	text := os.Getenv(slowEnv)
	if text == "" {
		return 1
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, no positive number", slowEnv, text)
	}
	return n
}

// holds tells whether the engine has a layer.
func (s suite) holds(l sandbox.Layer) bool { return s.support.Layer(l).State == sandbox.LayerHeld }

// complete: every limit and every layer is spoken of.
func (s suite) complete(t *testing.T) {
	var l sandbox.Limits
	for _, f := range l.Fields() {
		if s.support.Limits[f.Name] == "" {
			t.Errorf("limit %s: the engine does not say whether it enforces it", f.Name)
		}
	}
	for _, name := range sandbox.Layers() {
		switch r := s.support.Layer(name); {
		case r.State == sandbox.LayerMissing && r.Reason == "":
			t.Errorf("layer %s: missing without a reason", name)
		case r.State == "":
			t.Errorf("layer %s: no state", name)
		}
	}
}

// verdicts: ordinary programs get the verdict that they deserve.
func (s suite) verdicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   sandbox.Spec
		want   sandbox.Verdict
		passed int
		total  int
	}{
		{"passes", tests("def f(x):\n    return x * x\n", "assert f(2) == 4\nassert f(3) == 9\n"), sandbox.Passed, 2, 2},
		{"fails", tests("def f(x):\n    return x\n", "assert f(1) == 1\nassert f(2) == 4, 'two'\n"), sandbox.Failed, 1, 2},
		{"raises on load", tests("1 / 0\n", "assert True\n"), sandbox.Raised, 0, 0},
		{"raises in tests", tests("", "assert True\nundefined\nassert True\n"), sandbox.Raised, 1, 2},
		{"empty", tests("", ""), sandbox.Passed, 0, 0},
		{"exits early", tests("import os\ndef f():\n    os._exit(0)\n", "f()\nassert True\n"), sandbox.Exited, 0, 1},
		{"script", script("print('x')\n"), sandbox.Passed, 0, 0},
		{"script opens its streams", script("open('/dev/stdout', 'w').write('x')\nopen('/dev/stderr', 'w').write('x')\nassert open('/dev/stdin').read() == ''\n"), sandbox.Passed, 0, 0},
		{"script exits", script("raise SystemExit(3)\n"), sandbox.Exited, 0, 0},
		{"script raises", script("raise ValueError(1)\n"), sandbox.Raised, 0, 0},
		{"aborts", script("import os\nos.abort()\n"), sandbox.Crashed, 0, 0},
		{"segfaults", script("import ctypes\nctypes.string_at(0)\n"), sandbox.Crashed, 0, 0},
		{"own signal", script("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"), sandbox.Crashed, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runSpec(t, s.engine, c.spec)
			if reason := s.opts.Unheld[c.name]; reason != "" {
				s.notHeld(t, reason, r.Verdict != c.want)
				return
			}
			if r.Verdict != c.want || r.PassedCount != c.passed || r.TotalCount != c.total {
				t.Errorf("verdict %s %d/%d, want %s %d/%d\n%s", r.Verdict, r.PassedCount, r.TotalCount, c.want, c.passed, c.total, r.Summary)
			}
		})
	}
}

// notHeld: a weakness that is known is named, and taken off the list when it ends.
func (s suite) notHeld(t *testing.T, reason string, seen bool) {
	t.Helper()
	t.Logf("engine %s is known not to hold it: %s", s.engine.Name(), reason)
	if !seen {
		t.Error("it holds")
	}
}

// files go in and come out, and nothing else does.
func (s suite) files(t *testing.T) {
	spec := script(`
import os, sys
assert sys.argv == ["program.py", "a", "b c"], sys.argv
assert sys.stdin.read() == "input\n"
assert open("in/data.txt").read() == "hello"
assert os.stat("run.sh").st_mode & 0o777 == 0o755
os.makedirs("out/deep")
open("out/deep/result.bin", "wb").write(bytes(range(256)))
os.symlink("/etc/passwd", "out/link")
os.mkfifo("out/pipe")
open("other.txt", "w").write("not collected")
`)
	spec.Args, spec.Stdin, spec.Collect = []string{"a", "b c"}, "input\n", []string{"out/**"}
	spec.Files = []sandbox.File{
		{Path: "in/data.txt", Content: "aGVsbG8=", Encoding: sandbox.EncodingBase64},
		{Path: "run.sh", Content: "#!/bin/sh\n", Mode: "0755"},
	}
	r := runSpec(t, s.engine, spec)
	if !r.Passed {
		t.Fatal(r.Summary)
	}
	if len(r.Artifacts) != 1 || r.Artifacts[0].Path != "out/deep/result.bin" || len(r.Artifacts[0].Content) != 256 {
		t.Errorf("artifacts %+v", r.Artifacts)
	}
}

// facts about the program stand, whatever its files do to their collecting.
func (s suite) collecting(t *testing.T) {
	spec := script(`
import os
for i in range(17):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
open("deep", "w").write("x")
os.chdir("/")
print("done")
`)
	spec.Collect = []string{"**"}
	r := runSpec(t, s.engine, spec)
	if !r.Passed || r.Stdout != "done\n" || !r.ArtifactsCut || len(r.Artifacts) != 0 {
		t.Errorf("verdict %s (%s), stdout %q, cut %v, %d artifacts", r.Verdict, r.Reason, r.Stdout, r.ArtifactsCut, len(r.Artifacts))
	}
}

// output is kept head and tail, and counted whole.
func (s suite) output(t *testing.T) {
	spec := script("import sys\nsys.stdout.write('a' * 5_000_000)\nsys.stdout.write('END')\nsys.stderr.write('err')\n")
	spec.Limits.OutputBytes = 10_000
	r := runSpec(t, s.engine, spec)
	if !r.Passed || !r.StdoutTruncated || r.StderrTruncated || r.Usage.StdoutBytes != 5_000_003 {
		t.Errorf("passed %v, truncated %v %v, %d bytes", r.Passed, r.StdoutTruncated, r.StderrTruncated, r.Usage.StdoutBytes)
	}
	if !strings.HasSuffix(r.Stdout, "END") || len(r.Stdout) > 10_200 || r.Stderr != "err" {
		t.Errorf("kept %d characters, ending in %q; stderr %q", len(r.Stdout), r.Stdout[max(0, len(r.Stdout)-10):], r.Stderr)
	}
}

// refusesMissingLayer: a plan that requires what the engine lacks makes nothing.
func (s suite) refusesMissingLayer(t *testing.T) {
	p := newPlan(t, sandbox.Limits{})
	p.Require = []sandbox.Layer{"layer_of_another_world"}
	sb, err := s.engine.Create(t.Context(), p)
	if err == nil {
		_ = sb.Destroy(t.Context())
		t.Fatal("the sandbox was made all the same")
	}
	if sandbox.KindOf(err) != sandbox.KindDenied || !strings.Contains(err.Error(), "layer_of_another_world") {
		t.Errorf("refused with %q of kind %s", err, sandbox.KindOf(err))
	}
}

// killEndsEverything: Wait returns after Kill, Destroy can be called again.
func (s suite) killEndsEverything(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sb, err := s.engine.Create(ctx, newPlan(t, sandbox.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sb.Kill(); err != nil {
			t.Error(err)
		}
	}
	if _, err := sb.Wait(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := sb.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
}

// concurrent: sandboxes that live at once have ids of their own and see nothing
// of each other.
func (s suite) concurrent(t *testing.T) {
	const n = 8
	text := `
import os, time
mark = "mine-%d-%f" % (os.getpid(), time.time())
for place in (".", os.environ["TMPDIR"]):
    open(os.path.join(place, mark), "w").write("x")
time.sleep(0.5)
for place in (".", os.environ["TMPDIR"]):
    assert [n for n in os.listdir(place) if n.startswith("mine-")] == [mark]
`
	results := make(chan sandbox.Result, n)
	for range n {
		go func() {
			var r sandbox.Result
			defer func() { results <- r }() // also where the run could not be made
			r = runSpec(t, s.engine, script(text))
		}()
	}
	for range n {
		if r := <-results; !r.Passed {
			t.Error(r.Summary)
		}
	}
}

// layerNames lists the layers of a header line.
func layerNames(text string) []sandbox.Layer {
	var out []sandbox.Layer
	for name := range strings.FieldsSeq(text) {
		out = append(out, sandbox.Layer(name))
	}
	return slices.Compact(out)
}
