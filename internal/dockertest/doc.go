// Package dockertest plays a Docker Engine that says what no real one can be brought
// to say. Tests that want a real one have it of isolation/enginetest.
package dockertest
