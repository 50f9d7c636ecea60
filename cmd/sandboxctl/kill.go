package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
)

func newKill(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "kill ID...",
		Short: "Cancel live runs",
		Long:  "Cancels live runs and does not wait: the call that started one answers with the\nverdict canceled.",
		Args:  cobra.MinimumNArgs(1),
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, ids []string) error {
			var errs []error
			for _, id := range ids {
				if err := c.Cancel(ctx, id); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", id, err))
				}
			}
			return errors.Join(errs...)
		}),
	}
}
