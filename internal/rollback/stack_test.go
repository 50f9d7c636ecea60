package rollback

import (
	"errors"
	"slices"
	"testing"
)

func TestStack_UndoesInReverse(t *testing.T) {
	var s Stack
	var got []string
	first, third := errors.New("first"), errors.New("third")
	s.Add("undo 1", func() error { got = append(got, "1"); return first })
	s.Add("undo 2", func() error { got = append(got, "2"); return nil })
	s.Add("undo 3", func() error { got = append(got, "3"); return third })
	err := s.Rollback()
	if want := []string{"3", "2", "1"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if !errors.Is(err, first) || !errors.Is(err, third) {
		t.Errorf("errors were dropped: %v", err)
	}
	if err := s.Rollback(); err != nil || len(got) != 3 {
		t.Error("an undo ran twice")
	}
}

func TestStack_ReleasedUndoesNothing(t *testing.T) {
	var s Stack
	s.Add("undo", func() error { t.Error("undone after Release"); return nil })
	s.Release()
	if err := s.Rollback(); err != nil {
		t.Error(err)
	}
}
