package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) {
	if lane := os.Getenv("SANDBOXD_LANE"); lane != "e2e" {
		fmt.Fprintln(os.Stderr, "e2e: this is not the e2e lane; make test-e2e runs it")
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandboxd-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Built here and not taken from build/: those may be of another source.
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/sandboxd", "./cmd/sandboxctl")
	build.Dir = repo()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: build: %v\n%s", err, out)
		return 1
	}
	bin = dir
	return m.Run()
}

// repo is the module's root.
func repo() string {
	root, err := filepath.Abs("../..")
	if err != nil {
		panic(err) // the working directory is gone
	}
	return root
}
