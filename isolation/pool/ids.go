package pool

import (
	"sync"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// IDs hands out blocks of isolation.IDsPerSandbox host ids. A block belongs to one
// live sandbox at a time.
type IDs struct {
	mu    sync.Mutex
	free  []uint32
	first uint32
	next  uint32
	count uint32
}

// NewIDs makes blocks number first to count-1 available; those before are the
// caller's own.
func NewIDs(first, count uint32) *IDs { return &IDs{first: first, next: first, count: count} }

// waitingBlocks is how many freed blocks wait.
const waitingBlocks = 32

// Take returns the first id of a free block, counted from the engine's base.
// Freed blocks wait in a line of waitingBlocks or more, so that an id is not used
// again while anything keyed by it in the kernel may still be going away. They
// come before new ones, because engines keep a user namespace for each block.
func (s *IDs) Take() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next < s.count && len(s.free) < waitingBlocks {
		block := s.next
		s.next++
		return block * isolation.IDsPerSandbox, nil
	}
	if len(s.free) == 0 {
		return 0, sandbox.Errorf(sandbox.KindExhausted, "take host ids", "", "all %d blocks are in use", s.count-s.first)
	}
	block := s.free[0]
	s.free = s.free[1:]
	return block * isolation.IDsPerSandbox, nil
}

// Give takes back a block, by its first id.
func (s *IDs) Give(first uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, first/isolation.IDsPerSandbox)
}
