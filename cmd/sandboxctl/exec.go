package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

// execOptions are the flags of exec alone.
type execOptions struct {
	stdin   string
	files   []string
	collect []string
	out     string
}

func newExec(a *app) *cobra.Command {
	var r request
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec FILE|- [-- ARG...]",
		Short: "Run a program as a script",
		Long: "Runs a Python program as __main__ in a fresh sandbox. Its standard output and\n" +
			"error are passed through when it has ended, byte for byte except that bytes\n" +
			"that are no UTF-8 are replaced (on a terminal, control characters are shown\n" +
			"instead of obeyed). A program that did not pass gets one more line on standard\n" +
			"error that tells its verdict. The program's own exit code is in --json; a\n" +
			"program that ends with 0 has passed.\n\n" + exitHelp,
		Example: "  sandboxctl exec script.py -- --verbose in.csv\n" +
			"  sandboxctl exec plot.py --file in.csv --collect '*.png' --out pictures",
		Args: cobra.MinimumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.stdin, "stdin", "", "file for the program's standard input, - for this one's")
	flags.StringArrayVar(&o.files, "file", nil, "file to put into the workspace, as `PATH[=SRC]`; repeatable")
	flags.StringArrayVar(&o.collect, "collect", nil, "pattern of workspace files to bring back; repeatable")
	flags.StringVar(&o.out, "out", "", "directory to write them into")
	r.addTo(cmd)
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
		spec, err := o.spec(a, args)
		if err != nil {
			return err
		}
		if err := r.fill(&spec); err != nil {
			return err
		}
		return r.send(ctx, a, c, spec, func(res *sandbox.Result) error {
			if o.out != "" {
				if err := writeArtifacts(o.out, res.Artifacts); err != nil {
					return err
				}
				if res.ArtifactsCut {
					fmt.Fprintln(a.err, "sandboxctl: some files were left out: artifact_bytes or artifact_count was reached")
				}
			}
			if r.quiet(a) {
				return nil
			}
			return a.passThrough(res)
		})
	})
	return cmd
}

func (o *execOptions) spec(a *app, args []string) (sandbox.Spec, error) {
	var spec sandbox.Spec
	if o.stdin == stdinName && args[0] == stdinName {
		return spec, usagef("only one of program and its input can come from standard input")
	}
	if len(o.collect) > 0 && o.out == "" && !a.json {
		return spec, usagef("--collect needs --out DIR, or --json")
	}
	program, err := a.readText(args[0])
	if err != nil {
		return spec, err
	}
	spec.Program, spec.Args, spec.Collect = &program, args[1:], o.collect
	if o.stdin != "" {
		if spec.Stdin, err = a.readText(o.stdin); err != nil {
			return spec, err
		}
	}
	spec.Files, err = a.readFiles(o.files)
	return spec, err
}

// passThrough gives the program's output and, unless it passed, its verdict.
func (a *app) passThrough(res *sandbox.Result) error {
	if _, err := io.WriteString(a.out, a.themeFor(a.out).safe(res.Stdout)); err != nil {
		return err
	}
	if _, err := io.WriteString(a.err, a.themeFor(a.err).safe(res.Stderr)); err != nil {
		return err
	}
	if !res.Passed {
		t := a.themeFor(a.err)
		fmt.Fprintf(t.out, "%s\n", t.headline(res))
	}
	return nil
}
