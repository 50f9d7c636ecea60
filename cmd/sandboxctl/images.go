package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

func newImages(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Bring in, list and remove the images that runs can name",
		Long: "Images are file trees with a Python, which runs name by --image. Everybody may\n" +
			"list them; to change what there is takes root, the daemon's own user or a\n" +
			"manager of the configuration.\n\n" +
			"A REFERENCE is a name, a digest, or at least 12 digits of one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImagesLs(a), newImagesPull(a), newImagesImport(a), newImagesBuild(a), newImagesInspect(a), newImagesRm(a), newImagesGC(a))
	return cmd
}

func newImagesLs(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the images, the machine's own first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only digests")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
		list, err := c.ListImages(ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(list)
		}
		t := a.themeFor(a.out)
		rows := make([][]string, 0, len(list))
		for i := range list {
			if quiet {
				fmt.Fprintln(t.out, list[i].Digest)
				continue
			}
			rows = append(rows, imageRow(&list[i], time.Now()))
		}
		if quiet {
			return nil
		}
		return t.rows([]string{"name", "digest", "python", "size", "used"}, rows)
	})
	return cmd
}

// imageRow is an image in a line of a table.
func imageRow(i *apiclient.Image, now time.Time) []string {
	name := dash(strings.Join(i.Names, ","))
	switch {
	case i.Default:
		name += " (default)"
	case !i.Allowed:
		name += " (not allowed)"
	}
	size := "-"
	if !i.IsHost() {
		size = bytesText(i.Bytes)
	}
	return []string{oneLine(name, 80), shortDigest(i.Digest), oneLine(i.PythonVersion, 20), size, usedText(i, now)}
}

// digestDigits are shown of a digest: enough to name it by.
const digestDigits = 12

func shortDigest(digest string) string {
	digits := strings.TrimPrefix(digest, "sha256:")
	return digits[:min(len(digits), digestDigits)]
}

func usedText(i *apiclient.Image, now time.Time) string {
	switch ago := now.Sub(i.LastUsed); {
	case i.InUse > 0:
		return "now"
	case i.LastUsed.IsZero():
		return "-"
	case ago < time.Minute:
		return "just now"
	case ago < time.Hour:
		return fmt.Sprintf("%d min ago", ago/time.Minute)
	case ago < 48*time.Hour:
		return fmt.Sprintf("%d h ago", ago/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", ago/(24*time.Hour))
	}
}

func newImagesInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect REFERENCE",
		Short: "Show what is known of one image",
		Args:  cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
			i, err := c.InspectImage(ctx, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(i)
			}
			return a.showImage(&i)
		}),
	}
}

func (a *app) showImage(i *apiclient.Image) error {
	t := a.themeFor(a.out)
	yes := map[bool]string{true: "yes", false: "no"}
	rows := [][2]string{
		{"names", strings.Join(i.Names, ", ")},
		{"digest", i.Digest},
		{"origin", i.Origin},
		{"python", i.PythonVersion + " at " + i.Interpreter},
		{"stdlib", i.Stdlib},
		{"packages", strings.Join(i.SitePackages, ", ")},
		{"preload", strings.Join(i.Preload, ", ")},
		{"arch", i.Arch},
		{"size", fmt.Sprintf("%s, %d entries", bytesText(i.Bytes), i.Entries)},
		{"imported", timeText(i.Created)},
		{"last used", timeText(i.LastUsed)},
		{"in use by", fmt.Sprint(i.InUse)},
		{"default", yes[i.Default]},
		{"allowed", yes[i.Allowed]},
	}
	if i.IsHost() {
		rows[8][1] = "" // it is not stored
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(t.out, "%-10s %s\n", r[0], dash(oneLine(r[1], 400))); err != nil {
			return err
		}
	}
	return nil
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

func newImagesRm(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm REFERENCE...",
		Short: "Remove names, or images",
		Long: "Removes a name where the image has others, and the image with its last name or\n" +
			"by its digest. An image in use stays: runs hold theirs, and engines one that\n" +
			"they keep sandboxes ready of.",
		Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(ctx context.Context, c *apiclient.Client, references []string) error {
			var errs []error
			for _, reference := range references {
				if err := c.RemoveImage(ctx, reference); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", reference, err))
				}
			}
			return errors.Join(errs...)
		}),
	}
}

func newImagesGC(a *app) *cobra.Command {
	var unused time.Duration
	var bytes string
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove images that nobody uses",
		Long: "Removes what the daemon's configuration takes for garbage (unused_hours and\n" +
			"store_bytes of the section images), or what the flags say instead. Images in\n" +
			"use stay, and those that the configuration names. Prints what it removed.",
		Example: "  sandboxctl images gc --unused 720h",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().DurationVar(&unused, "unused", 0, "remove what was not used for so `long`: 720h")
	cmd.Flags().StringVar(&bytes, "bytes", "", "then remove what was not used for longest, until all take no more than `SIZE`: 10GiB")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, _ []string) error {
		var g apiclient.Garbage
		if cmd.Flags().Changed("unused") {
			if unused < time.Millisecond {
				return usagef("--unused: %s is not at least 1ms", unused)
			}
			ms := unused.Milliseconds()
			g.UnusedMillis = &ms
		}
		if bytes != "" {
			n, err := limitValue("store_bytes", bytes)
			if err != nil || n < 1 {
				return usagef("--bytes: %q is no size such as 10GiB", bytes)
			}
			g.Bytes = &n
		}
		collected, err := c.CollectImages(ctx, g)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(collected)
		}
		return a.showCollected(&collected)
	})
	return cmd
}

func (a *app) showCollected(collected *apiclient.Collected) error {
	t := a.themeFor(a.out)
	for i := range collected.Removed {
		fmt.Fprintf(t.out, "%s %s\n", shortDigest(collected.Removed[i].Digest), oneLine(dash(strings.Join(collected.Removed[i].Names, ",")), 80))
	}
	_, err := fmt.Fprintf(t.out, "%d removed, %s freed\n", len(collected.Removed), bytesText(collected.FreedBytes))
	return err
}

// broughtIn tells of an image that has come.
func (a *app) broughtIn(i *apiclient.Image, quiet bool) error {
	switch {
	case a.json:
		return a.printJSON(i)
	case quiet:
		_, err := fmt.Fprintln(a.out, i.Digest)
		return err
	}
	t := a.themeFor(a.out)
	_, err := fmt.Fprintf(t.out, "%s %s: Python %s, %s\n", i.Digest, oneLine(dash(strings.Join(i.Names, ",")), 80), oneLine(i.PythonVersion, 20), bytesText(i.Bytes))
	return err
}

// bringIn has the daemon bring an image in and shows how.
func (a *app) bringIn(ctx context.Context, c *apiclient.Client, r sandbox.ImageRequest, quiet bool) error {
	progress := a.progressFor(quiet)
	image, err := c.BringInImage(ctx, r, progress.show)
	progress.end(err == nil)
	if err != nil {
		return err
	}
	return a.broughtIn(&image, quiet)
}
