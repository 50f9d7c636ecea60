package process_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/internal/testenv"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/isolation/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newEngine(t *testing.T) *process.Engine {
	t.Helper()
	image, err := images.Host(t.Context(), images.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for d := dir; filepath.Base(d) != "tmp" && d != "/"; d = filepath.Dir(d) { // programs pass through under ids of their own
		if err := os.Chmod(d, 0o711); err != nil { //nolint:gosec // as said
			t.Fatal(err)
		}
	}
	e, err := process.New(process.Config{
		Image: image, Python: testenv.Python(t), Arch: runtime.GOARCH, Log: slog.New(slog.DiscardHandler),
		Dir: dir, UIDBase: 1_900_100_000, Sandboxes: 32,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func TestEngine_Conforms(t *testing.T) {
	testenv.Root(t)
	enginetest.Run(t, newEngine(t), enginetest.Options{Golden: "testdata/posture.golden"})
}
