package runs

import (
	"fmt"

	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// TextFault is a lone surrogate in a program's text. JSON can carry one and
// UTF-8 cannot, so it has to be told beside the spec: decoding replaces it.
type TextFault struct {
	Field string // solution, tests or program
	First rune   // the first lone surrogate
	Start int    // its position in code points
	End   int    // one after the last of an unbroken row of them
}

// phase says in whose text the fault stands.
func (f *TextFault) phase() sandbox.Phase { return sandbox.Phase(f.Field) }

// message is what Python says when it has to encode such a text.
func (f *TextFault) message() string {
	if f.End-f.Start == 1 {
		return fmt.Sprintf(`'utf-8' codec can't encode character '\u%04x' in position %d: surrogates not allowed`, f.First, f.Start)
	}
	return fmt.Sprintf(`'utf-8' codec can't encode characters in position %d-%d: surrogates not allowed`, f.Start, f.End-1)
}

// ending is the end of a program that cannot even be handed to an interpreter.
// It is the program's own fault and takes no sandbox.
func (f *TextFault) ending() pyrunner.Ending {
	const kind = "UnicodeEncodeError"
	text := kind + ": " + f.message()
	return pyrunner.Ending{
		Outcome: sandbox.Outcome{Exited: true, ExitCode: 1},
		Report: sandbox.Report{Exception: &sandbox.Exception{
			Phase: f.phase(), Type: kind, Message: f.message(), Traceback: text,
		}},
		Stderr: pyrunner.Output{Head: []byte(text + "\n"), Total: int64(len(text) + 1)},
	}
}
