package pyrunner

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Request is the plan frame's body: everything the supervisor needs to run one
// program. It is sent once, to a supervisor that has said hello.
type Request struct {
	Mode     sandbox.Mode   `json:"mode"`
	Solution string         `json:"solution"`
	Tests    string         `json:"tests"` // handed to the program only after the solution is loaded
	Program  string         `json:"program"`
	Stdin    string         `json:"stdin"`
	Args     []string       `json:"args"`
	Files    []sandbox.File `json:"files"`
	Collect  []string       `json:"collect"`
	FailFast bool           `json:"fail_fast"`
	Limits   sandbox.Limits `json:"limits"`
	Nonce    string         `json:"nonce"` // names genuine events of the program's channel
}

// NewRequest builds the plan frame of a spec that admission has checked.
func NewRequest(spec *sandbox.Spec, mode sandbox.Mode, limits sandbox.Limits) Request {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails since Go 1.24
	return Request{
		Mode:     mode,
		Solution: text(spec.Solution),
		Tests:    text(spec.Tests),
		Program:  text(spec.Program),
		Stdin:    spec.Stdin,
		Args:     orEmpty(spec.Args),
		Files:    orEmpty(spec.Files),
		Collect:  orEmpty(spec.Collect),
		FailFast: spec.FailFast,
		Limits:   limits,
		Nonce:    hex.EncodeToString(nonce[:]),
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
