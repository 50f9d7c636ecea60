package build

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestRequest_TakesNamesOfPackagesOnly(t *testing.T) {
	good := []string{"numpy", "numpy==1.26.4", "a", "x[extra]>=1,<2", "x[a,b]~=1.0.*", "zope.interface!=3.0+local", "Django<=5"}
	if err := (Request{Requirements: good, Network: true, Base: "local/pybase@sha256:" + strings.Repeat("0", 64)}).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"", " ", "numpy pandas", "--index-url=http://x", "-r", "-e.", "./x", "/etc/passwd", "../x", "x @ http://x", "git+https://x/y",
		"http://x/y.whl", "x;python_version<'3'", "x$(id)", "x`id`", "x|id", "x&id", "x>out", "x==", "x\nRUN id", "x\n", "x\x00", "x[", "x[]", "x,y",
		"x=1", "x==$HOME", "x==1;id", "x==-1", "é", strings.Repeat("x", maxRequirementBytes+1),
	} {
		err := Request{Requirements: []string{"numpy", bad}, Network: true}.Validate()
		if sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), "requirements") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	for _, bad := range []string{
		" ", "x y", "../x", "x/../y", "/x", "X", "x?y=z", "x#y", "x%2fy", "x\nRUN id", "x@sha256:1", "x:", "$HOME", "--x", "http://x/y", strings.Repeat("x", 600),
	} {
		if err := (Request{Base: bad}).Validate(); sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), "base") {
			t.Errorf("base %q: got %v", bad, err)
		}
	}
	many := Request{Requirements: make([]string, maxRequirements+1), Network: true}
	for i := range many.Requirements {
		many.Requirements[i] = "x"
	}
	if err := many.Validate(); err == nil {
		t.Error("takes any number of packages")
	}
	if err := (Request{Requirements: []string{"x"}}).Validate(); err == nil || !strings.Contains(err.Error(), "make base") {
		t.Errorf("packages without a network: %v", err)
	}
}

func TestDefaultBase_IsPinned(t *testing.T) {
	name, tag, ok := strings.Cut(defaultBase(), ":")
	if !ok || name != "python" || strings.Count(tag, ".") < 2 || !strings.Contains(tag, "slim") {
		t.Errorf("default base %q", defaultBase())
	}
	if err := source.CheckReference("base", defaultBase()); err != nil {
		t.Error(err)
	}
}

// TestBuildContext_IsMarked: what a broken build leaves is found by it.
func TestBuildContext_IsMarked(t *testing.T) {
	r, err := buildContext("ONE")
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(r)
	h, err := files.Next()
	if err != nil || h.Name != dockerfile {
		t.Fatal(h, err)
	}
	text, err := io.ReadAll(files)
	if err != nil || strings.Count(string(text), "FROM ${BASE}\nLABEL org.sandboxd.build=ONE\n") != 1 {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := files.Next(); !errors.Is(err, io.EOF) {
		t.Error("there is more than one file")
	}
}
