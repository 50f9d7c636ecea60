package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

func TestNames_SayWhatTheyOwn(t *testing.T) {
	err := walk(func(p string) error {
		switch path.Ext(p) {
		case ".go", ".py":
		default:
			return nil
		}
		for part := range strings.SplitSeq(strings.TrimSuffix(p, path.Ext(p)), "/") {
			if slices.Contains(vagueNames, strings.TrimSuffix(part, "_test")) {
				t.Errorf("%s: %q names no noun that it owns", p, part)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPackages_HaveADocFile(t *testing.T) {
	have, need := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		switch {
		case path.Base(s.path) == "doc.go", path.Base(s.path) == "main.go":
			have[dir] = true
		case !s.isTest():
			need[dir] = true
		}
	}
	for dir := range need {
		if !have[dir] {
			t.Errorf("%s has no doc.go that says what the package owns and must never do", dir)
		}
	}
}
