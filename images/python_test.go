package images

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes an executable that stands for an interpreter.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bin", "python3")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAsk_RefusesWhatTheGuestCannotRunOn(t *testing.T) {
	for text, want := range map[string]string{
		`echo '{"implementation":"pypy","version":[3,10,1]}'`:                                       "CPython",
		`echo '{"implementation":"cpython","version":[3,8,1]}'`:                                     "3.9",
		`echo '{"implementation":"cpython","version":[3,11,1],"ctypes_error":"No module named x"}'`: "_ctypes",
		`echo '{"implementation":"cpython","version":[3,11,1]}'`:                                    "no standard library",
		`echo nonsense`: "invalid character",
		`echo first >&2; echo reason >&2; exit 3`: "reason",
		`head -c 3000000 /dev/zero`:               "ask",
	} {
		_, err := ask(t.Context(), script(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestAsk_EndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := ask(ctx, script(t, "exec sleep 60")); err == nil || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestHost_RefusesUnusableInterpreters(t *testing.T) {
	venv := script(t, "exit 0")
	config := filepath.Join(filepath.Dir(filepath.Dir(venv)), "pyvenv.cfg")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for python, want := range map[string]string{
		"python3":             "absolute",
		"/nowhere/bin/python": "find interpreter",
		venv:                  "virtual environment",
	} {
		if _, err := Host(t.Context(), HostConfig{Python: python}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", python, err, want)
		}
	}
}

func TestOutermost_DropsWhatIsInside(t *testing.T) {
	got := outermost([]string{"/b/c", "/a", "/a/x", "/ab", "/b/c", "/b/cd"})
	if want := "/a /ab /b/c /b/cd"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
}
