package enginetest

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

//go:embed hostile/*.py
var hostileFiles embed.FS

// attack is one hostile program with what its head says of it.
type attack struct {
	name   string
	text   string
	want   []sandbox.Verdict // one of these
	limits sandbox.Limits
	layers []sandbox.Layer // what holds it; an engine without one of them is not tried
	stdout string          // must appear
}

// readAttack parses the head: comment lines "# key: value" up to the first line
// that is no comment.
func readAttack(name string) (attack, error) {
	data, err := hostileFiles.ReadFile(name)
	if err != nil {
		return attack{}, err
	}
	a := attack{name: strings.TrimSuffix(path.Base(name), ".py"), text: string(data)}
	lines := bufio.NewScanner(strings.NewReader(a.text))
	for lines.Scan() {
		head, ok := strings.CutPrefix(lines.Text(), "# ")
		if !ok {
			break
		}
		key, value, ok := strings.Cut(head, ": ")
		if !ok {
			continue
		}
		switch key {
		case "want":
			for v := range strings.FieldsSeq(value) {
				a.want = append(a.want, sandbox.Verdict(v))
			}
		case "limits":
			if err := json.Unmarshal([]byte(value), &a.limits); err != nil {
				return attack{}, fmt.Errorf("%s: limits: %w", name, err)
			}
		case "layers":
			a.layers = layerNames(value)
		case "stdout":
			a.stdout = value
		}
	}
	if len(a.want) == 0 {
		return attack{}, fmt.Errorf("%s: no `# want:` on top", name)
	}
	return a, nil
}

// hostile runs the corpus. A program that gets through prints LEAK.
func (s suite) hostile(t *testing.T) {
	entries, err := hostileFiles.ReadDir("hostile")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		a, err := readAttack("hostile/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !s.tries(a) {
			t.Logf("%s: not tried, engine %s lacks what holds it: %v", a.name, s.engine.Name(), a.layers)
			continue
		}
		t.Run(a.name, func(t *testing.T) { s.attack(t, a) })
	}
}

func (s suite) tries(a attack) bool {
	for _, f := range a.limits.Fields() {
		if *f.Value != 0 && s.support.Limits[f.Name] != isolation.Enforced {
			return false
		}
	}
	for _, l := range a.layers {
		if !s.holds(l) {
			return false
		}
	}
	return true
}

func (s suite) attack(t *testing.T, a attack) {
	spec := script(a.text)
	spec.Limits = a.limits
	if s.slow > 1 {
		planned, _, err := spec.Limits.Plan(sandbox.DefaultLimits(), sandbox.DefaultCeilings())
		if err != nil {
			t.Fatal(err)
		}
		ceilings := sandbox.DefaultCeilings()
		spec.Limits.WallMillis = min(s.slow*planned.WallMillis, ceilings.WallMillis)
		spec.Limits.CPUMillis = min(s.slow*planned.CPUMillis, ceilings.CPUMillis)
	}
	r := runSpec(t, s.engine, spec)
	complaints := a.judge(r)
	if reason := s.opts.Unheld[a.name]; reason != "" {
		s.notHeld(t, reason, len(complaints) > 0)
		return
	}
	for _, text := range complaints {
		t.Error(text)
	}
}

// judge tells in what a run is not what its head says.
func (a attack) judge(r sandbox.Result) []string {
	var complaints []string
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if !slices.Contains(a.want, r.Verdict) {
		complain("verdict %s (%s), want one of %v\nstdout: %.2000s\n%s", r.Verdict, r.Reason, a.want, r.Stdout, r.Summary)
	}
	if text := r.Stdout + r.Stderr; strings.Contains(text, "LEAK") {
		complain("it got through: %.2000s", text)
	}
	if a.stdout != "" && !strings.Contains(r.Stdout, a.stdout) {
		complain("stdout lacks %q: %.2000s", a.stdout, r.Stdout)
	}
	return complaints
}
