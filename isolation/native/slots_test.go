package native

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// TestSlots_NeverShared: whatever the order of taking and giving, a block of ids
// has one holder, and the zygote's is never handed out.
func TestSlots_NeverShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Uint32Range(2, 8).Draw(t, "count")
		s := newSlots(count)
		live := map[uint32]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				first, err := s.take()
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
					s.give(first)
					delete(live, first)
					return
				}
			},
		})
	})
}
