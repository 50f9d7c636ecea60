package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

func newRun(a *app) *cobra.Command {
	var r request
	var tests string
	var failFast bool
	cmd := &cobra.Command{
		Use:   "run SOLUTION --tests FILE",
		Short: "Run a solution against its tests",
		Long:  "Runs the tests against the solution in a fresh sandbox and shows the verdict.\nSOLUTION or the tests' FILE may be - for standard input, but not both.\n\n" + exitHelp,
		Example: "  sandboxctl run solution.py --tests test_solution.py\n" +
			"  generate | sandboxctl run - --tests tests.py --limit wall_ms=5s --summary",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVarP(&tests, "tests", "t", "", "file of the tests, - for standard input (required)")
	cmd.Flags().BoolVar(&failFast, "fail-fast", false, "stop at the first failed assertion")
	r.addTo(cmd)
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
		switch {
		case tests == "":
			return usagef("--tests is required")
		case tests == stdinName && args[0] == stdinName:
			return usagef("only one of solution and tests can come from standard input")
		}
		solution, err := a.readText(args[0])
		if err != nil {
			return err
		}
		text, err := a.readText(tests)
		if err != nil {
			return err
		}
		spec := sandbox.Spec{Solution: &solution, Tests: &text, FailFast: failFast}
		if err := r.fill(&spec); err != nil {
			return err
		}
		return r.send(ctx, a, c, spec, func(res *sandbox.Result) error {
			if r.quiet(a) {
				return nil
			}
			return a.showResult(res)
		})
	})
	return cmd
}
