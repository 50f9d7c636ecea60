package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sandboxd/sandboxd"

// source is one Go file of the module.
type source struct {
	path    string // from the module's root, with slashes
	imports []string
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// sources parses every Go file of the module, whatever its build constraints.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := walk(func(p string) error {
		if path.Ext(p) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, p), nil, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("parse %s: %w", p, err)
		}
		all = append(all, source{path: p, imports: importPaths(f)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go file found: the test looks in the wrong place")
	}
	return all
}

func importPaths(f *ast.File) []string {
	var paths []string
	for _, s := range f.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// root is the module's root, seen from this package.
const root = "../.."

// walk visits the module's files, leaving out what is not source.
func walk(visit func(path string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == ".git" || rel == "build" || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		return visit(rel)
	})
}

// treeOf finds the row for a package directory.
func treeOf(dir string) (tree, bool) {
	var best tree
	found := false
	for _, row := range trees {
		if under(dir, row.path) && len(row.path) > len(best.path) {
			best, found = row, true
		}
	}
	return best, found
}

// under tells whether dir is tree or below it.
func under(dir, tree string) bool {
	return dir == tree || strings.HasPrefix(dir, tree+"/")
}

func allowed(dir string, entries []string) bool {
	return slices.ContainsFunc(entries, func(e string) bool {
		if one, ok := strings.CutPrefix(e, exact); ok {
			return dir == one
		}
		return under(dir, e)
	})
}

// check lists what is wrong with the imports of one file.
func check(s source) []string {
	dir := path.Dir(s.path)
	row, ok := treeOf(dir)
	if !ok {
		return []string{fmt.Sprintf("%s: its tree has no row in the import table", s.path)}
	}
	var bad []string
	for _, imp := range s.imports {
		if imp == module {
			imp += "/."
		}
		switch own, ok := strings.CutPrefix(imp, module+"/"); {
		case !ok:
			bad = append(bad, checkOutside(s, dir, imp)...)
		case own == dir, allowed(own, row.allow):
		case s.isTest() && (own == row.path || allowed(own, testAlso) || allowed(own, row.tests)):
		default:
			bad = append(bad, fmt.Sprintf("%s imports %s, which %s may not", s.path, own, row.path))
		}
	}
	return bad
}

func checkOutside(s source, dir, imp string) []string {
	if under(dir, "sandbox") && !s.isTest() && strings.Contains(strings.Split(imp, "/")[0], ".") {
		return []string{fmt.Sprintf("%s imports %s: sandbox uses the standard library only", s.path, imp)}
	}
	if imp == "unsafe" && !strings.Contains(path.Base(s.path), "_unsafe") {
		return []string{s.path + " imports unsafe: only files named *_unsafe.go may"}
	}
	for _, rule := range outside {
		if under(imp, rule.pkg) && !slices.ContainsFunc(rule.trees, func(t string) bool { return under(dir, t) }) {
			return []string{fmt.Sprintf("%s imports %s: %s", s.path, imp, rule.why)}
		}
	}
	return nil
}

func TestImports_PointDown(t *testing.T) {
	for _, s := range sources(t) {
		for _, bad := range check(s) {
			t.Error(bad)
		}
	}
}

// TestCheck_CatchesPlantedViolations proves that the table bites.
func TestCheck_CatchesPlantedViolations(t *testing.T) {
	planted := []source{
		{path: "sandbox/x.go", imports: []string{"github.com/google/go-cmp/cmp"}},
		{path: "sandbox/x.go", imports: []string{module + "/isolation"}},
		{path: "internal/linux/cgroup/x.go", imports: []string{module + "/isolation"}},
		{path: "isolation/native/x.go", imports: []string{module + "/isolation/process"}},
		{path: "isolation/native/x.go", imports: []string{"golang.org/x/sys/unix"}},
		{path: "daemon/runs/x.go", imports: []string{module + "/daemon/httpapi"}},
		{path: "daemon/runs/x_test.go", imports: []string{module + "/isolation/native"}},
		{path: "daemon/server.go", imports: []string{module + "/isolation/native"}},
		{path: "daemon/runs/x.go", imports: []string{"github.com/danielgtaylor/huma/v2"}},
		{path: "cmd/sandboxctl/x.go", imports: []string{module + "/daemon"}},
		{path: "internal/linux/seccomp/x.go", imports: []string{"unsafe"}},
		{path: "somewhere/new/x.go"},
		{path: "daemon/runs/x.go", imports: []string{module}},
	}
	for _, s := range planted {
		if len(check(s)) == 0 {
			t.Errorf("%s importing %v was let through", s.path, s.imports)
		}
	}
	fine := []source{
		{path: "cmd/sandboxd/engines.go", imports: []string{module + "/isolation/native"}},
		{path: "internal/linux/seccomp/install_unsafe.go", imports: []string{"unsafe", "golang.org/x/sys/unix"}},
		{path: "daemon/runs/x_test.go", imports: []string{module + "/isolation/fake"}},
	}
	for _, s := range fine {
		if bad := check(s); len(bad) > 0 {
			t.Errorf("%s: %v", s.path, bad)
		}
	}
}
