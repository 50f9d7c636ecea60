package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of sandboxctl (info shows the daemon's)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.ran = true
			if a.json {
				return a.printJSON(map[string]string{"version": versionText(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			_, err := fmt.Fprintf(a.out, "sandboxctl %s %s/%s %s\n", versionText(), runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}
