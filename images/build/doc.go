// Package build has a Docker Engine build images from Dockerfile.python.
//
// A client says no more than a base and a list of packages, and both have a form.
// It must never take a Dockerfile, a context or options of a container's from
// anybody: what a build runs, runs in the Engine, whose containers are not the
// sandboxes of this daemon.
//
// Nothing that the Engine says is believed without a bound, and nothing of it is
// shown as it is.
//
// Proven by TestRequest_TakesNamesOfPackagesOnly, TestPython_BuildsAnImage,
// TestPython_CancelLeavesNothing and TestPython_BoundsWhatAnEngineSays.
package build
