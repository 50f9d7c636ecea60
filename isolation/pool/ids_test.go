package pool_test

import (
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/pool"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestIDs_WaitBeforeTheyAreUsedAgain(t *testing.T) {
	const blocks = 100
	ids := pool.NewIDs(1, blocks)
	first, err := ids.Take()
	if err != nil || first != isolation.IDsPerSandbox {
		t.Fatalf("%d, %v", first, err)
	}
	ids.Give(first)
	for i := range 40 {
		next, err := ids.Take()
		if err != nil || (next == first && i < 31) {
			t.Fatalf("take %d: %d, %v", i, next, err)
		}
		ids.Give(next)
	}
}

func TestIDs_RunOut(t *testing.T) {
	ids := pool.NewIDs(1, 3)
	for range 2 {
		if _, err := ids.Take(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ids.Take(); sandbox.KindOf(err) != sandbox.KindExhausted {
		t.Errorf("got %v", err)
	}
}
