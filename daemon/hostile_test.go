package daemon_test

import (
	"context"

	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// hostile writes bytes that are no UTF-8, wherever a guest can.
func hostile(_ context.Context, s *fake.Stage) error {
	if _, err := s.ReadPlan(); err != nil {
		return err
	}
	if err := s.Started(); err != nil {
		return err
	}
	if err := s.Output("stdout", []byte("a\xff\xed\xa0\x80\x00\x1b[31m")); err != nil {
		return err
	}
	s.Artifact("x\x00\ufffd", []byte{0xff, 0})
	if err := s.Event(map[string]any{"event": "exception", "type": "E\x00", "message": "\ud7ff\x00"}); err != nil {
		return err
	}
	return s.Exit(pyrunner.Exit{Code: 1, StdoutBytes: 12})
}
