package dockertest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Fake serves h as a Docker Engine until the test has ended, and returns its
// address. Paths come without their version.
func Fake(t testing.TB, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake-") //nolint:usetesting // a short path: a socket's address has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "docker.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	const version = "1.41"
	server := &httptest.Server{Listener: listener, Config: &http.Server{ //nolint:gosec // no network
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Api-Version", version)
			if r.URL.Path == "/_ping" {
				return
			}
			r.URL.Path = strings.TrimPrefix(r.URL.Path, "/v"+version)
			h.ServeHTTP(w, r)
		}),
	}}
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}
