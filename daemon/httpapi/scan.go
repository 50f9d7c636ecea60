package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/daemon/runs"
)

// maxDepth is how deep a request may nest; the deepest that means anything is 3.
const maxDepth = 32

// found is what decoding a body would hide.
type found struct {
	fault *runs.TextFault // the first in the order in which the texts run
}

// programTexts are the top-level fields whose lone surrogates are the program's
// fault, in the order in which the texts run.
func programTexts() []string { return []string{"solution", "tests", "program"} }

// scan looks at a raw body before it is decoded. encoding/json replaces what is
// no UTF-8 and lone surrogates, and takes the last of two equal names: all
// three are told here or never.
func scan(body []byte) (found, error) {
	switch {
	case !utf8.Valid(body):
		return found{}, badBody("body", "the body is not valid UTF-8")
	case !json.Valid(body):
		return found{}, badBody("body", "%s", syntaxError(body))
	}
	s := scanner{data: body, faults: map[string]*runs.TextFault{}}
	s.space()
	if s.data[s.pos] != '{' {
		return found{}, badBody("body", "the body is not a JSON object")
	}
	if err := s.value("body", 0); err != nil {
		return found{}, err
	}
	for _, name := range programTexts() {
		if f := s.faults[name]; f != nil {
			return found{fault: f}, nil
		}
	}
	return found{}, nil
}

func badBody(location, format string, args ...any) *Problem {
	const status = http.StatusBadRequest
	message := fmt.Sprintf(format, args...)
	return &Problem{
		Status: status, Title: title(status), Code: string(kindOf(status)),
		Detail: location + ": " + message, Errors: []Detail{{Location: clip(location, 4*maxEcho), Message: message}},
	}
}

func syntaxError(body []byte) string {
	var v any
	err := json.Unmarshal(body, &v)
	if err == nil {
		return "not JSON"
	}
	return "not JSON: " + clip(err.Error(), 4*maxEcho)
}

// scanner walks JSON that is known to be valid.
type scanner struct {
	data   []byte
	pos    int
	faults map[string]*runs.TextFault
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// value walks one value that stands at path.
func (s *scanner) value(path string, depth int) error {
	if depth > maxDepth {
		return badBody(path, "nested deeper than %d", maxDepth)
	}
	s.space()
	switch s.data[s.pos] {
	case '{':
		return s.object(path, depth)
	case '[':
		return s.array(path, depth)
	case '"':
		return s.text(path, depth)
	}
	for s.pos < len(s.data) { // a number or a word
		switch s.data[s.pos] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return nil
		}
		s.pos++
	}
	return nil
}

func (s *scanner) object(path string, depth int) error {
	s.pos++ // {
	names := map[string]bool{}
	for {
		s.space()
		switch s.data[s.pos] {
		case '}':
			s.pos++
			return nil
		case ',':
			s.pos++
			continue
		}
		raw, lone := s.str()
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return badBody(path, "not JSON: %v", err)
		}
		switch {
		case lone != nil:
			return badBody(path, "a name holds a lone surrogate")
		case names[name]:
			return badBody(path+"."+clip(name, maxEcho), "the name is given twice")
		}
		names[name] = true
		s.space()
		s.pos++ // :
		if err := s.value(path+"."+clip(name, maxEcho), depth+1); err != nil {
			return err
		}
	}
}

func (s *scanner) array(path string, depth int) error {
	s.pos++ // [
	for n := 0; ; n++ {
		s.space()
		switch s.data[s.pos] {
		case ']':
			s.pos++
			return nil
		case ',':
			s.pos++
		}
		s.space()
		if s.data[s.pos] == ']' {
			continue
		}
		if err := s.value(path+"["+strconv.Itoa(n)+"]", depth+1); err != nil {
			return err
		}
	}
}

// text walks a string value. Its lone surrogates are a fault of the program in
// a program's text, and bad input anywhere else.
func (s *scanner) text(path string, depth int) error {
	_, lone := s.str()
	if lone == nil {
		return nil
	}
	if depth == 1 {
		for _, name := range programTexts() {
			if path == "body."+name {
				lone.Field = name
				s.faults[name] = lone
				return nil
			}
		}
	}
	return badBody(path, "holds a lone surrogate at position %d", lone.Start)
}

// str walks one string literal and gives it, quotes included, and its first
// unbroken row of lone surrogates.
func (s *scanner) str() ([]byte, *runs.TextFault) {
	begin := s.pos
	s.pos++ // "
	var lone *runs.TextFault
	for point := 0; s.data[s.pos] != '"'; point++ {
		r, size := s.point()
		s.pos += size
		if r < 0xd800 || r > 0xdfff {
			continue
		}
		switch {
		case lone == nil:
			lone = &runs.TextFault{First: r, Start: point, End: point + 1}
		case lone.End == point:
			lone.End++
		}
	}
	s.pos++ // "
	return s.data[begin:s.pos], lone
}

// point gives the code point at pos and its length in the literal. Two escapes
// that make a pair are one code point, as they are in Python's decoder.
func (s *scanner) point() (rune, int) {
	rest := s.data[s.pos:]
	if rest[0] != '\\' {
		return utf8.DecodeRune(rest)
	}
	if rest[1] != 'u' {
		return 0, 2 // no surrogate, whichever it is
	}
	high := hex4(rest[2:6])
	if high >= 0xd800 && high <= 0xdbff && len(rest) >= 12 && rest[6] == '\\' && rest[7] == 'u' {
		if low := hex4(rest[8:12]); low >= 0xdc00 && low <= 0xdfff {
			return 0x10000 + (high-0xd800)<<10 + (low - 0xdc00), 12
		}
	}
	return high, 6
}

// hex4 reads four hexadecimal digits; the JSON is valid, so they are.
func hex4(b []byte) rune {
	n, _ := strconv.ParseUint(string(b), 16, 16)
	return rune(n)
}
