package pyrunner

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sandbox"
)

// oneWay reads what a guest said and swallows what the daemon says.
type oneWay struct{ io.Reader }

func (oneWay) Write(p []byte) (int, error) { return len(p), nil }

func (oneWay) Close() error { return nil }

// said records what f makes a guest say.
func said(f func(g *GuestSide)) []byte {
	var buf bytes.Buffer
	f(NewGuestSide(&buf))
	return buf.Bytes()
}

// FuzzDecoder feeds arbitrary bytes to a whole conversation: it must end, keep
// no more than the limits allow, and never pass a run whose frames are broken.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add(said(func(g *GuestSide) { _ = g.Fail(GuestFail{Step: "mount", Errno: 1}) }))
	f.Add(said(func(g *GuestSide) {
		g.nonce = "n"
		_ = g.Started()
		_ = g.Output("stdout", []byte("hi"))
		_ = g.Event(map[string]any{"event": "sites", "top": 1, "all": 1})
		_ = g.Event(map[string]any{"event": "passed", "site": 0})
		_ = g.Event(map[string]any{"event": "done"})
		g.Artifact("a/b", []byte("x"))
		_ = g.Exit(Exit{StdoutBytes: 2})
	}))
	f.Add(said(func(g *GuestSide) { _ = g.Started(); _ = g.Started() }))
	f.Add([]byte{0, 1, 0, 0, '{'})
	limits := sandbox.Limits{OutputBytes: 64, ArtifactBytes: 64, ArtifactCount: 4, CPUMillis: 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		began := false
		c := NewConversation(oneWay{bytes.NewReader(data)}, Request{Mode: sandbox.ModeTests, Nonce: "n", Limits: limits})
		c.OnStart = func() { began = true }
		e, err := c.Run()
		if began == (err != nil) {
			t.Fatalf("began %t, error %v", began, err)
		}
		if err != nil {
			return
		}
		if n := len(e.Stdout.Head) + len(e.Stdout.Tail); n > 64 {
			t.Fatalf("%d bytes of stdout were kept", n)
		}
		total := 0
		for _, a := range e.Artifacts {
			total += len(a.Content)
		}
		if total > 64 || len(e.Artifacts) > 4 {
			t.Fatalf("%d artifacts with %d bytes were kept", len(e.Artifacts), total)
		}
		res := Assemble(sandbox.ModeTests, limits, e)
		if res.Passed && (e.Outcome.Lost || e.Outcome.Stopped != sandbox.StopNone || e.Report.Broken != "") {
			t.Fatalf("passed after %+v %+v", e.Outcome, e.Report)
		}
		if text, err := json.Marshal(res); err != nil || !utf8.Valid(text) {
			t.Fatalf("result is no JSON: %v", err)
		}
	})
}

// FuzzReport feeds arbitrary text of the program's channel, in two pieces: the
// tally must add up however it is cut, and a forger without the nonce gets no
// pass.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"nonce":"n","event":"loaded"}`+"\n"+`{"nonce":"n","event":"sites","top":1,"all":2}`+"\n"+`{"nonce":"n","event":"passed","site":0}`+"\n"+`{"nonce":"n","event":"done"}`+"\n"), 10)
	f.Add([]byte(`{"nonce":"n","event":"failed","line":3,"message":"m"}`+"\n"), 0)
	f.Add([]byte(`{"nonce":"n","event":"exception","type":"T","exit_code":1}`+"\n"), 1)
	f.Add([]byte(`{"event":"done"}`+"\n"), 2)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		rep := tally(t, "n", data)
		if rep.Passed < 0 || rep.Failed < 0 || rep.Passed+rep.Failed > rep.Total || len(rep.Failures) > maxFailures {
			t.Fatalf("report %+v", rep)
		}
		if cut >= 0 && cut < len(data) {
			pieces := tally(t, "n", data[:cut], data[cut:])
			if pieces.Passed != rep.Passed || pieces.Failed != rep.Failed || pieces.Done != rep.Done || pieces.Broken != rep.Broken {
				t.Fatalf("in two pieces %+v, in one %+v", pieces, rep)
			}
		}
		forged := tally(t, "another", data)
		if bytes.Contains(data, []byte("another")) {
			return
		}
		if forged.Done || forged.Passed > 0 {
			t.Fatalf("without the nonce: %+v", forged)
		}
	})
}

func tally(t *testing.T, nonce string, pieces ...[]byte) sandbox.Report {
	t.Helper()
	r := newReportReader(nonce)
	for _, p := range pieces {
		if err := r.write(p); err != nil && !errors.Is(err, ErrFrame) {
			t.Fatal(err)
		}
	}
	return r.finish()
}
