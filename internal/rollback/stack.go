package rollback

import (
	"errors"
	"fmt"
	"slices"
)

// Stack holds the undos of the steps done so far. The zero value is ready. It is
// not safe for concurrent use.
//
//	var undo rollback.Stack
//	defer func() {
//		if err != nil {
//			err = errors.Join(err, undo.Rollback())
//		}
//	}()
type Stack struct {
	steps []step
}

type step struct {
	name string
	undo func() error
}

// Add records how to undo a step that has just succeeded. name goes into errors,
// verb first: "unmount rootfs".
func (s *Stack) Add(name string, undo func() error) {
	s.steps = append(s.steps, step{name, undo})
}

// Rollback runs all undos, last first, and empties the stack. It goes on after
// errors and returns them joined.
func (s *Stack) Rollback() error {
	steps := s.steps
	s.steps = nil
	var errs []error
	for _, step := range slices.Backward(steps) {
		if err := step.undo(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

// Release forgets all undos: the setup stands, and its owner now tears it down.
func (s *Stack) Release() { s.steps = nil }
