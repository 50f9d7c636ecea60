package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/sandbox"
)

// wrongRunError ends a bench: a run was not what every run has to be.
type wrongRunError struct {
	side   string // ours or plain
	detail string
}

func (e *wrongRunError) Error() string { return e.side + ": " + e.detail }

// benchResult is the part of a run's result that is checked.
type benchResult struct {
	Verdict          sandbox.Verdict `json:"verdict"`
	PassedCount      int             `json:"passed_count"`
	ExceptionType    string          `json:"exception_type"`
	ExceptionMessage string          `json:"exception_message"`
	Engine           string          `json:"engine"`
	Layers           json.RawMessage `json:"layers"`
	Usage            struct {
		Ready *bool `json:"ready"` // nil when the daemon does not say
	} `json:"usage"`
}

// checker holds results to what was asked for.
type checker struct {
	engine   string
	required []sandbox.Layer
	verified []byte // layers as they stood in a result that was found right
}

// check reads a result and finds what is wrong with it.
func (c *checker) check(body []byte) (benchResult, error) {
	var r benchResult
	if err := json.Unmarshal(body, &r); err != nil {
		return r, wrongf("the result is no JSON: %v", err)
	}
	switch {
	case r.Verdict != sandbox.Passed:
		return r, wrongf("verdict %s instead of passed: %s: %s", r.Verdict, r.ExceptionType, r.ExceptionMessage)
	case r.PassedCount != benchAssertions:
		return r, wrongf("%d assertions held instead of %d", r.PassedCount, benchAssertions)
	case r.Engine != c.engine:
		return r, wrongf("engine %s instead of %s", r.Engine, c.engine)
	case bytes.Equal(r.Layers, c.verified): // so it is decoded once and not each time
		return r, nil
	}
	if err := c.checkLayers(r.Layers); err != nil {
		return r, err
	}
	c.verified = slices.Clone(r.Layers)
	return r, nil
}

func (c *checker) checkLayers(raw []byte) error {
	var layers []sandbox.LayerReport
	if err := json.Unmarshal(raw, &layers); err != nil {
		return wrongf("the result's layers are no JSON: %v", err)
	}
	for _, want := range c.required {
		held := slices.ContainsFunc(layers, func(l sandbox.LayerReport) bool {
			return l.Layer == want && l.State == sandbox.LayerHeld
		})
		if !held {
			return wrongf("layer %s was not held", want)
		}
	}
	return nil
}

func wrongf(format string, args ...any) error {
	return &wrongRunError{side: sideOurs, detail: fmt.Sprintf(format, args...)}
}
