// Package httpapi is the only package that knows HTTP: routes, the OpenAPI
// description, the reading of request bodies and the one mapping of errors to
// problem+json.
//
// It must never let an error's text out unclassified (problem decides), never
// decode a body that scan has not seen, and never answer with bytes that are no
// UTF-8. FuzzSpec and TestRuns_BadInput (in package daemon) prove it.
package httpapi

//go:generate go run ../../internal/gen/openapi openapi.yaml
