// Command sandboxd is the daemon: it runs untrusted Python in hardened
// single-use sandboxes for clients of its Unix socket.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/isolation/native"
)

func main() {
	if os.Args[0] == native.ContainerName { // the daemon started itself as a container
		fmt.Fprintln(os.Stderr, native.EnterContainer())
		os.Exit(1)
	}
	tuneRuntime()
	ctx, stop := terminated(context.Background())
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
		os.Exit(1)
	}
}

// tuneRuntime leaves the processors to the programs: the daemon mostly waits, and
// what it does costs half as much when its goroutines do not move between them.
// Its heap is small, so collecting it seldom costs little memory. The Go
// runtime's own variables win.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// options are the flags; each wins over the configuration file.
type options struct {
	socket   string
	stateDir string
	file     string
}

func newRoot() *cobra.Command {
	var o options
	serveRun := func(cmd *cobra.Command, _ []string) error {
		cfg, err := o.load()
		if err != nil {
			return err
		}
		return serve(cmd.Context(), cfg)
	}
	root := &cobra.Command{
		Use:   "sandboxd",
		Short: "Run untrusted Python in hardened single-use sandboxes, for clients of a Unix socket",
		Long: "sandboxd serves its API on a Unix socket until it is told to stop (SIGTERM or\n" +
			"SIGINT); it then lets live runs end within shutdown.drain_ms, and cancels the rest.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          serveRun,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.socket, "socket", "", "path of the socket (default: socket.path of the configuration)")
	flags.StringVar(&o.stateDir, "state-dir", "", "directory for what outlives the daemon (default: state_dir of the configuration)")
	flags.StringVar(&o.file, "config", "", "configuration file (default: none, which is a whole configuration)")
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "Serve; the same as without a command", Args: cobra.NoArgs, RunE: serveRun},
		newConfig(&o),
		&cobra.Command{
			Use: "version", Short: "Show the version", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "sandboxd", versionText())
				return err
			},
		},
	)
	return root
}

func newConfig(o *options) *cobra.Command {
	parent := &cobra.Command{Use: "config", Short: "Check or show the configuration", Args: cobra.NoArgs}
	parent.AddCommand(
		&cobra.Command{
			Use: "check", Short: "Tell everything that is wrong with the configuration", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if _, err := o.load(); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
				return err
			},
		},
		&cobra.Command{
			Use: "show", Short: "Show the configuration as it applies: defaults, file and flags", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := o.load()
				if err != nil {
					return err
				}
				text, err := cfg.Encode()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			},
		},
	)
	return parent
}

// load puts the flags on top of the file on top of the defaults, and checks it.
func (o *options) load() (config.Config, error) {
	cfg, err := config.Load(o.file)
	if err != nil {
		return cfg, err
	}
	for _, f := range []struct {
		flag string
		dst  *string
	}{{o.socket, &cfg.Socket.Path}, {o.stateDir, &cfg.StateDir}} {
		if f.flag == "" {
			continue
		}
		if *f.dst, err = filepath.Abs(f.flag); err != nil {
			return cfg, err
		}
	}
	if err := cfg.Validate(); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	if err := checkEngines(&cfg); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	if err := checkImages(&cfg); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	return cfg, nil
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
