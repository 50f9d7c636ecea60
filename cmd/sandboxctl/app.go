package main

import (
	"context"
	"encoding/json"
	"io"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
)

// app is what every command shares.
type app struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string

	socket  string
	timeout time.Duration
	json    bool
	ran     bool // a command's own code was reached: the command line was right
}

func newApp(in io.Reader, out, err io.Writer, getenv func(string) string) *app {
	return &app{in: in, out: out, err: err, getenv: getenv}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "sandboxctl",
		Short:         "Run untrusted Python in hardened single-use sandboxes",
		Long:          "sandboxctl runs untrusted Python through sandboxd and shows what became of it.\n\n" + exitHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.socket, "socket", "", "socket of the daemon (default: $"+apiclient.SocketVariable+", else the system's for root, the user's own otherwise)")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up, and cancel the run, after this long (0: never)")
	flags.BoolVar(&a.json, "json", false, "print the daemon's answer as JSON")
	root.AddCommand(newRun(a), newExec(a), newPS(a), newKill(a), newImages(a), newDoctor(a), newInfo(a), newBench(a), newVersion(a))
	return root
}

// do wraps a command's code: it makes the client and the deadline.
func (a *app) do(f func(ctx context.Context, c *apiclient.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.ran = true
		ctx := cmd.Context()
		if a.timeout < 0 {
			return usagef("--timeout: %s is negative", a.timeout)
		}
		if a.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
			defer cancel()
		}
		if a.socket == "" {
			a.socket = apiclient.DefaultSocket()
		}
		client := apiclient.New(a.socket)
		defer client.Close()
		return f(ctx, client, args)
	}
}

// printJSON prints v for machines.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// version is set by the linker; without it the build's own information serves.
var version string //nolint:gochecknoglobals // -X needs a variable

func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
