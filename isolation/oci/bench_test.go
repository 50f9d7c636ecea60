package oci_test

import (
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation/oci"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// BenchmarkEngine_Cold is a run that makes its container, until its end is known;
// BenchmarkEngine_Warm one that finds it ready. Removal is not counted.
func BenchmarkEngine_Cold(b *testing.B) { benchmark(b, 0) }

func BenchmarkEngine_Warm(b *testing.B) { benchmark(b, 2) }

func benchmark(b *testing.B, ready int) {
	for _, name := range oci.Names() {
		b.Run(name, func(b *testing.B) {
			e := newEngineLike(b, oci.Config{Runtime: name, Ready: ready})
			if _, err := runOnce(b.Context(), e, sandbox.DefaultLimits(), "pass"); err != nil {
				b.Fatal(err)
			}
			text, l := "pass", sandbox.DefaultLimits()
			for b.Loop() {
				b.StopTimer()
				for e.Stats().Ready < ready { // and nobody is at work on others
					time.Sleep(time.Millisecond)
				}
				b.StartTimer()
				sb, err := e.Create(b.Context(), plan(l))
				if err != nil {
					b.Fatal(err)
				}
				_, err = sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := sb.Destroy(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
