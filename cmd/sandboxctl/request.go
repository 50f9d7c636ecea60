package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

// request holds the flags that run and exec share.
type request struct {
	limits    []string
	engine    string
	image     string
	integrity string
	labels    []string
	layers    []string
	summary   bool
}

func (r *request) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&r.limits, "limit", nil, "cap one thing, as `name=value`: wall_ms=5s, memory_bytes=256MiB")
	flags.StringVar(&r.engine, "engine", "", "engine that makes the sandbox (default: the daemon's)")
	flags.StringVar(&r.image, "image", "", "image that the program runs in (default: the daemon's)")
	flags.StringVar(&r.integrity, "integrity", "", "how the verdict is protected: shared or split (default: the daemon's)")
	flags.StringArrayVar(&r.labels, "label", nil, "free label, as `key=value`; repeatable")
	flags.StringArrayVar(&r.layers, "require-layer", nil, "isolation layer that must hold; repeatable")
	flags.BoolVar(&r.summary, "summary", false, "print only the short account, as for a model that mends the code")
}

// fill puts the flags into spec.
func (r *request) fill(spec *sandbox.Spec) error {
	limits, err := parseLimits(r.limits)
	if err != nil {
		return err
	}
	spec.Limits = limits
	spec.Engine, spec.Image, spec.Integrity = r.engine, r.image, sandbox.Integrity(r.integrity)
	for _, pair := range r.labels {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return usagef("--label %s: want key=value", pair)
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[key] = value
	}
	for _, l := range r.layers {
		spec.RequireLayers = append(spec.RequireLayers, sandbox.Layer(l))
	}
	return nil
}

// send runs spec and shows the result, by show unless a flag asks otherwise.
func (r *request) send(ctx context.Context, a *app, c *apiclient.Client, spec sandbox.Spec, show func(*sandbox.Result) error) error {
	if a.json && r.summary {
		return usagef("--json and --summary cannot be given together")
	}
	raw, err := c.RunRaw(ctx, spec)
	if err != nil {
		return err
	}
	var res sandbox.Result
	if err := json.Unmarshal(raw, &res); err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	switch {
	case a.json:
		_, err = fmt.Fprintln(a.out, strings.TrimRight(string(raw), "\n"))
	case r.summary:
		_, err = fmt.Fprintln(a.out, a.themeFor(a.out).safe(res.Summary))
	}
	if showErr := show(&res); showErr != nil {
		return showErr
	}
	if err != nil {
		return err
	}
	if !res.Passed {
		return errNotPassed
	}
	return nil
}

// quiet tells whether a flag has replaced the usual display.
func (r *request) quiet(a *app) bool { return a.json || r.summary }
