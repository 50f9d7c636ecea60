package build

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Progress is one line of a build.
type Progress struct {
	Step, Steps int    // 0 until the first step
	Text        string // the instruction when a step begins, else a line of output
}

// Bounds on what an Engine says. pip's output for a hundred packages has some
// 100 KiB.
const (
	maxMessageBytes = 1 << 20
	maxOutputBytes  = 4 << 20
	maxPullBytes    = 64 << 20 // an Engine tells of each layer several times a second
	maxLineBytes    = 400
	tailLines       = 20
)

// message is one of those that the Engine streams.
type message struct {
	Stream string `json:"stream"`
	Status string `json:"status"`   // of a base that is fetched
	Layer  string `json:"id"`       // of such a status
	Bar    string `json:"progress"` // of such a status, drawn
	Error  string `json:"error"`
	Detail struct {
		Code int `json:"code"` // with which a step's command ended
	} `json:"errorDetail"`
	Aux struct {
		ID string `json:"ID"`
	} `json:"aux"`
}

// output reads what the Engine says of a build.
type output struct {
	tell    func(Progress)
	at      Progress // the step, and its instruction
	partial []byte   // of a line
	tail    []string // the last lines of this step
	image   string
}

// build reads to a build's end, and returns what went wrong with it.
func (o *output) build(r io.Reader) error {
	if err := o.read(r, maxOutputBytes); err != nil {
		return err
	}
	if o.image == "" {
		return sandbox.Errorf(sandbox.KindUnavailable, "build image", "Docker Engine", "it ended the build without a word")
	}
	return nil
}

// read reads to the end, and returns what went wrong by the Engine's own account.
func (o *output) read(r io.Reader, most int64) error {
	bounded := &io.LimitedReader{R: r, N: most + 1}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(make([]byte, 0, 64<<10), maxMessageBytes)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil && bounded.N > 0 {
			return sandbox.Errorf(sandbox.KindUnavailable, "build image", "Docker Engine", "what it says cannot be read: %w", err)
		}
		if err := o.take(m); err != nil {
			return err
		}
	}
	o.flush()
	switch err := lines.Err(); {
	case bounded.N <= 0, errors.Is(err, bufio.ErrTooLong):
		return sandbox.Errorf(sandbox.KindExhausted, "build image", o.where(), "its output is longer than %d bytes", most)
	default:
		return err
	}
}

func (o *output) take(m message) error {
	switch {
	case m.Error != "":
		o.flush()
		return o.failure(m)
	case m.Aux.ID != "":
		if !source.IsImageID(m.Aux.ID) {
			return sandbox.Errorf(sandbox.KindUnavailable, "build image", "Docker Engine", "it calls the image %q, which is no digest", printable(m.Aux.ID))
		}
		o.image = m.Aux.ID
	case m.Status != "" && m.Bar == "":
		o.line(strings.TrimSpace(m.Layer + " " + m.Status))
	}
	for text := m.Stream; text != ""; {
		line, rest, whole := strings.Cut(text, "\n")
		o.partial = append(o.partial, line[:min(len(line), maxLineBytes+1-min(len(o.partial), maxLineBytes+1))]...)
		if whole {
			o.flush()
		}
		text = rest
	}
	return nil
}

// flush ends a line.
func (o *output) flush() {
	if text := string(o.partial); strings.TrimSpace(text) != "" {
		o.line(text)
	}
	o.partial = o.partial[:0]
}

// enginesOwn are lines that tell of containers and layers by their IDs.
var enginesOwn = regexp.MustCompile(`^( ---> |Removing intermediate container )`)

var stepLine = regexp.MustCompile(`^Step (\d{1,4})/(\d{1,4}) : (.*)$`)

func (o *output) line(text string) {
	text = printable(text)
	if m := stepLine.FindStringSubmatch(text); m != nil {
		step, _ := strconv.Atoi(m[1])
		steps, _ := strconv.Atoi(m[2])
		// A program's output may look like a step, too, but only forward.
		if step > o.at.Step && step <= steps && (o.at.Steps == 0 || steps == o.at.Steps) {
			o.at, o.tail = Progress{Step: step, Steps: steps, Text: strings.Join(strings.Fields(m[3]), " ")}, nil
			o.tell(o.at)
			return
		}
	}
	if !enginesOwn.MatchString(text) {
		o.tail = append(o.tail, text)
		o.tail = o.tail[max(0, len(o.tail)-tailLines):]
	}
	o.tell(Progress{Step: o.at.Step, Steps: o.at.Steps, Text: text})
}

func (o *output) where() string {
	if o.at.Step == 0 {
		return "base"
	}
	return fmt.Sprintf("step %d of %d: %.80s", o.at.Step, o.at.Steps, o.at.Text)
}

// failure is the build's end, with the last lines of the step that failed. The
// Engine's own words for a command that failed are that command.
func (o *output) failure(m message) error {
	what := printable(m.Error)
	if m.Detail.Code != 0 {
		what = fmt.Sprintf("it ended with %d", m.Detail.Code)
	}
	return &sandbox.Error{
		Kind: sandbox.KindInvalid, Op: "build image", Subject: o.where(),
		Err: errors.New(strings.Join(append([]string{what}, o.tail...), "\n")),
	}
}

// colour is what the Engine adds to what steps write to their standard error.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// printable replaces what a terminal would obey, and gives a line an end.
func printable(text string) string {
	text = strings.TrimRight(colour.ReplaceAllString(text, ""), " \r\n")
	if len(text) > maxLineBytes {
		text = text[:maxLineBytes] + "…"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
