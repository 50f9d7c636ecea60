package main

import (
	"os"
	"testing"
)

// TestLimits_DocIsCurrent lets the unit lane say what make check-gen would.
func TestLimits_DocIsCurrent(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/limits.md is out of date: make gen")
	}
}
