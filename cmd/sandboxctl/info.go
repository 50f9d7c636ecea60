package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

func newInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show what the daemon is and what it offers",
		Args:  cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
			info, err := c.Info(ctx)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(info)
			}
			return a.showInfo(c.Socket(), &info)
		}),
	}
}

func (a *app) showInfo(socket string, info *apiclient.Info) error {
	t := a.themeFor(a.out)
	uptime := time.Duration(info.UptimeSeconds * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(t.out, "%s %s, up %s, %s/%s, %s\n", t.paint(t.strong, "sandboxd"), info.Version, uptime, info.OS, info.Arch, info.Go)
	fmt.Fprintf(t.out, "socket   %s\n", socket)
	fmt.Fprintf(t.out, "engines  %s\n", engineNames(info.Engines))
	if info.DefaultEngine != "" {
		fmt.Fprintf(t.out, "default  %s, image %s, %s\n", info.DefaultEngine, info.Image, info.Interpreter)
	}
	limits, ceilings := info.Limits, info.Ceilings
	most := ceilings.Fields()
	rows := make([][]string, 0, len(most))
	for i, f := range limits.Fields() {
		rows = append(rows, []string{f.Name, limitText(f), limitText(most[i])})
	}
	return t.rows([]string{"limit", "default", "ceiling"}, rows)
}

func engineNames(engines []apiclient.EngineInfo) string {
	if len(engines) == 0 {
		return "none"
	}
	names := make([]string, 0, len(engines))
	for _, e := range engines {
		switch {
		case !e.Usable:
			names = append(names, e.Name+" (not usable)")
		case !e.Allowed:
			names = append(names, e.Name+" (not allowed)")
		default:
			names = append(names, e.Name)
		}
	}
	return strings.Join(names, ", ")
}

func limitText(f sandbox.LimitField) string {
	v := *f.Value
	switch {
	case v == 0:
		return "none"
	case strings.HasSuffix(f.Name, "_bytes"):
		return bytesText(v)
	case strings.HasSuffix(f.Name, "_ms"):
		return (time.Duration(v) * time.Millisecond).String()
	}
	return fmt.Sprint(v)
}
