package native

import (
	"sync"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// slots hands out blocks of host ids. The zygotes have the first block; a block
// belongs to one live sandbox at a time.
type slots struct {
	mu    sync.Mutex
	free  []uint32
	next  uint32
	count uint32
}

func newSlots(count uint32) *slots { return &slots{next: 1, count: count} }

const waitingSlots = 32

// take returns the first id of a free block, counted from the engine's base.
// Freed blocks wait in a line of waitingSlots or more, so that an id is not used
// again while anything keyed by it in the kernel may still be going away. They
// come before new ones, because zygotes keep a user namespace for each block.
func (s *slots) take() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next < s.count && len(s.free) < waitingSlots {
		slot := s.next
		s.next++
		return slot * isolation.IDsPerSandbox, nil
	}
	if len(s.free) == 0 {
		return 0, sandbox.Errorf(sandbox.KindExhausted, "take host ids", "", "all %d blocks are in use", s.count-1)
	}
	slot := s.free[0]
	s.free = s.free[1:]
	return slot * isolation.IDsPerSandbox, nil
}

func (s *slots) give(first uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, first/isolation.IDsPerSandbox)
}
