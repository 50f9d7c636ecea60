// Command openapi writes the API's description, as the Go types give it, to the
// file that it is given.
package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/httpapi"
	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/daemon/tenants"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: openapi FILE")
	}
	cfg := config.Default()
	manager, err := runs.New(cfg.Runs(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	images, err := catalog.New(cfg.Catalog(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	api, err := httpapi.New(httpapi.Config{
		Logger:   slog.New(slog.DiscardHandler),
		PeerCred: func(net.Conn) (tenants.Caller, error) { return tenants.Caller{}, nil },
	}, manager, images)
	if err != nil {
		return err
	}
	text, err := api.OpenAPI()
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], text, 0o644)
}
