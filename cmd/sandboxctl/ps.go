package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
)

func newPS(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List live runs (root sees everybody's)",
		Args:  cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
			list, err := c.ListRuns(ctx)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			rows := make([][]string, 0, len(list))
			for _, r := range list {
				rows = append(rows, []string{
					r.ID, fmt.Sprint(r.Owner), r.State, r.Engine, millisText(float64(r.AgeMS)), oneLine(labelText(r.Labels), 60),
				})
			}
			return a.themeFor(a.out).rows([]string{"id", "owner", "state", "engine", "age", "labels"}, rows)
		}),
	}
}

func labelText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+labels[k])
	}
	return strings.Join(parts, ",")
}
