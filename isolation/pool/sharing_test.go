package pool_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestIDs_NeverShared: whatever the order of taking and giving, a block of ids
// has one holder, and the first, the engine's own, is never handed out.
func TestIDs_NeverShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Uint32Range(2, 8).Draw(t, "count")
		s := pool.NewIDs(1, count)
		live := map[uint32]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				first, err := s.Take()
				if err != nil {
					if sandbox.KindOf(err) != sandbox.KindExhausted || len(live) != int(count)-1 {
						t.Fatalf("%v with %d of %d in use", err, len(live), count-1)
					}
					return
				}
				if live[first] || first == 0 || first%isolation.IDsPerSandbox != 0 || first >= count*isolation.IDsPerSandbox {
					t.Fatalf("took %d with %v in use", first, live)
				}
				live[first] = true
			},
			"give": func(*rapid.T) {
				for first := range live {
					s.Give(first)
					delete(live, first)
					return
				}
			},
		})
	})
}
