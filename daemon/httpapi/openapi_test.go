package httpapi

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestOpenAPI_IsCurrent(t *testing.T) {
	manager, err := runs.New(runs.Config{
		MaxConcurrent: 1, Defaults: sandbox.DefaultLimits(), Ceilings: sandbox.DefaultCeilings(),
		Require: []sandbox.Layer{}, Timing: runs.DefaultTiming(),
	}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	images, err := catalog.New(catalog.Config{ImportTime: time.Minute}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	api, err := New(Config{
		Logger:   slog.New(slog.DiscardHandler),
		PeerCred: func(net.Conn) (tenants.Caller, error) { return tenants.Caller{}, nil },
	}, manager, images)
	if err != nil {
		t.Fatal(err)
	}
	made, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, kept) {
		t.Error("openapi.yaml is not what the types say: go generate ./daemon/httpapi")
	}
}
