package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(|^\s*def (test_\w+)\(`)
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*|test_\\w+|[a-z_]+\\.py)`")
)

// TestThreatModel_NamesTestsThatExist keeps the table of attacks honest: every
// test and hostile program that it names is there.
func TestThreatModel_NamesTestsThatExist(t *testing.T) {
	known := map[string]bool{}
	err := walk(func(p string) error {
		if ext := path.Ext(p); ext != ".go" && ext != ".py" {
			return nil
		}
		known[path.Base(p)] = true
		text, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return err
		}
		for _, m := range definedTest.FindAllSubmatch(text, -1) {
			known[string(m[1])+string(m[2])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllSubmatch(text, -1)
	if len(named) == 0 {
		t.Fatal("docs/threat-model.md names no test")
	}
	for _, m := range named {
		if name := string(m[1]); !known[name] {
			t.Errorf("docs/threat-model.md names %s, which does not exist", name)
		}
	}
}
