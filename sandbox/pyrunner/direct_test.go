package pyrunner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// saying is one thing that a scripted program says.
type saying struct {
	from Heard
	text string
}

// scripted is a program that says what it is told to, and notes what it hears.
type scripted struct {
	says   []saying
	exit   [2]int
	lost   bool
	told   bytes.Buffer
	input  string
	killed bool
	closed bool
	waits  []time.Duration
}

func (p *scripted) Input(text string) error { p.input = text; return nil }

func (p *scripted) Tell(data []byte) error { p.told.Write(data); return nil }

func (p *scripted) Listen(buf []byte, patience time.Duration) (Heard, int, error) {
	p.waits = append(p.waits, patience)
	if len(p.says) == 0 {
		return HeardEnd, 0, nil
	}
	next := &p.says[0]
	n := copy(buf, next.text)
	from := next.from
	if next.text = next.text[n:]; next.text == "" {
		p.says = p.says[1:]
	}
	return from, n, nil
}

func (p *scripted) Exit() (code, signal int, known bool) { return p.exit[0], p.exit[1], !p.lost }

func (p *scripted) Kill() error { p.killed = true; return nil }

func (p *scripted) Close() error { p.closed = true; return nil }

// heard reads what the program was told: length-prefixed objects.
func (p *scripted) heard(t *testing.T) []map[string]any {
	t.Helper()
	var out []map[string]any
	for p.told.Len() > 0 {
		var head [4]byte
		if _, err := io.ReadFull(&p.told, head[:]); err != nil {
			t.Fatal(err)
		}
		body := p.told.Next(int(binary.BigEndian.Uint32(head[:])))
		var v map[string]any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func frameText(t *testing.T, f frame) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeFrame(&b, &f, MaxFrameFromGuest); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func directLimits() sandbox.Limits {
	l := sandbox.DefaultLimits()
	l.OutputBytes = 8
	return l
}

func converseDirect(p *scripted, mode sandbox.Mode, limits sandbox.Limits) (Ending, error, bool) {
	began := false
	c := NewDirectConversation(p, Own{Workspace: "/w"}, Request{
		Mode: mode, Solution: "s", Tests: "secret", Stdin: "in", Nonce: "n", Limits: limits, Args: []string{}, Files: []sandbox.File{},
	})
	c.OnStart = func() { began = true }
	e, err := c.Run()
	return e, err, began
}

const loaded = `{"nonce":"n","event":"loaded"}` + "\n"

func TestDirect_TellsTestsOnlyOnceTheSolutionIsLoaded(t *testing.T) {
	rest := `{"nonce":"n","event":"sites","top":1,"all":1}` + "\n" + `{"nonce":"n","event":"passed","site":0}` + "\n" + `{"nonce":"n","event":"done"}` + "\n"
	p := &scripted{says: []saying{
		{HeardStatus, frameText(t, frame{Type: FrameStarted})[:3]},
		{HeardStatus, frameText(t, frame{Type: FrameStarted})[3:]},
		{HeardReport, loaded[:10]},
		{HeardReport, loaded[10:]},
		{HeardReport, rest},
	}}
	e, err, began := converseDirect(p, sandbox.ModeTests, directLimits())
	if err != nil || !began || !e.Report.Done || e.Report.Passed != 1 || !e.Outcome.Exited || e.Outcome.Lost {
		t.Fatalf("%v, %+v", err, e)
	}
	told := p.heard(t)
	if len(told) != 2 || told[0]["solution"] != "s" || told[0]["tests"] != nil || told[1]["tests"] != "secret" || p.input != "in" {
		t.Errorf("told %v, input %q", told, p.input)
	}
	// Nothing that the run needs at once is waited for; what it only tells is.
	for i, wait := range p.waits {
		if handedOver := i > 3; (wait > 0) != handedOver {
			t.Errorf("listened %d with patience %v", i, wait)
		}
	}
}

func TestDirect_NeverTellsTestsToOneThatDidNotLoad(t *testing.T) {
	p := &scripted{
		says: []saying{{HeardStatus, frameText(t, frame{Type: FrameStarted})}, {HeardReport, `{"nonce":"n","event":"exception","phase":"solution","type":"E"}` + "\n"}},
		exit: [2]int{1, 0},
	}
	e, err, _ := converseDirect(p, sandbox.ModeTests, directLimits())
	if err != nil || e.Report.Exception == nil || len(p.heard(t)) != 1 {
		t.Errorf("%v, %+v", err, e)
	}
}

func TestDirect_ForgedEventGetsTestsAndNoPass(t *testing.T) {
	p := &scripted{says: []saying{{HeardStatus, frameText(t, frame{Type: FrameStarted})}, {HeardReport, "garbage\n" + loaded}}}
	e, err, _ := converseDirect(p, sandbox.ModeTests, directLimits())
	if err != nil || e.Report.Broken == "" || len(p.heard(t)) != 2 {
		t.Errorf("%v, %+v", err, e)
	}
	if res := Assemble(sandbox.ModeTests, directLimits(), e); res.Passed {
		t.Error("it passed")
	}
}

func TestDirect_KeepsHeadAndTail(t *testing.T) {
	p := &scripted{says: []saying{
		{HeardStdout, "abcdef"}, {HeardStderr, "err"}, {HeardStdout, strings.Repeat("x", 300_000)}, {HeardStdout, "WXYZ"},
	}}
	e, err, began := converseDirect(p, sandbox.ModeScript, directLimits())
	if err != nil || !began {
		t.Fatal(err, began)
	}
	if got := e.Stdout; string(got.Head) != "abcd" || string(got.Tail) != "WXYZ" || got.Total != 300_010 || !got.Truncated() {
		t.Errorf("%q %q %d", got.Head, got.Tail, got.Total)
	}
	if string(e.Stderr.Head) != "err" || e.Stderr.Truncated() {
		t.Errorf("%+v", e.Stderr)
	}
}

func TestDirect_StopsAFlood(t *testing.T) {
	limits := directLimits()
	limits.OutputStopBytes = 100
	p := &scripted{says: []saying{{HeardStdout, strings.Repeat("x", 101)}}, exit: [2]int{-1, 9}}
	e, err, _ := converseDirect(p, sandbox.ModeScript, limits)
	if err != nil || !p.killed || e.Outcome.Signal != 9 || e.Stdout.Total != 101 {
		t.Errorf("%v, killed %v, %+v", err, p.killed, e.Outcome)
	}
}

func TestDirect_EndsBeforeTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		p    *scripted
		step string // of a setup error, "" for a verdict
	}{
		"a failed step":     {&scripted{says: []saying{{HeardStatus, frameText(t, frame{Type: FrameError, Error: &GuestFail{Step: "seccomp", Errno: 22}})}}}, "seccomp"},
		"killed for memory": {&scripted{exit: [2]int{-1, 9}}, ""},
	} {
		e, err, began := converseDirect(c.p, sandbox.ModeScript, directLimits())
		step, failed := errors.AsType[*sandbox.StepError](err)
		switch {
		case c.step != "" && (!failed || step.Step != c.step || began):
			t.Errorf("%s: %v, began %v", name, err, began)
		case c.step == "" && (err != nil || !began || e.Outcome.Signal != 9):
			t.Errorf("%s: %v, %+v", name, err, e.Outcome)
		}
	}
}

func TestDirect_LosesWhatNobodyKnows(t *testing.T) {
	p := &scripted{says: []saying{{HeardStatus, frameText(t, frame{Type: FrameStarted})}, {HeardStdout, "hi"}}, lost: true}
	e, err, _ := converseDirect(p, sandbox.ModeScript, directLimits())
	if err != nil || !e.Outcome.Lost || e.Outcome.Exited || string(e.Stdout.Head) != "hi" {
		t.Errorf("%v, %+v", err, e)
	}
}

func TestDirect_RefusesToCollect(t *testing.T) {
	c := NewDirectConversation(&scripted{}, Own{}, Request{Collect: []string{"*"}})
	if _, err := c.Run(); err == nil {
		t.Error("nobody is there to collect")
	}
}

// FuzzDirect has a program say anything at all, anywhere.
func FuzzDirect(f *testing.F) {
	f.Add([]byte("\x01" + loaded))
	f.Add([]byte{1, 0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &scripted{}
		for len(data) > 1 {
			n := min(len(data)-1, 1+int(data[0]>>3))
			p.says = append(p.says, saying{HeardStatus + Heard(data[0]&3), string(data[1 : 1+n])})
			data = data[1+n:]
		}
		limits := directLimits()
		e, err, began := converseDirect(p, sandbox.ModeTests, limits)
		if began == (err != nil) {
			t.Fatalf("began %v, error %v", began, err)
		}
		if n := len(e.Stdout.Head) + len(e.Stdout.Tail); n > int(limits.OutputBytes) {
			t.Fatalf("%d bytes of output were kept", n)
		}
	})
}
