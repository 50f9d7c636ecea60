package fake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// ByText takes its cues from lines of the solution, the tests and the program
// that start with "#fake ": one word and its arguments. Without any, tests and
// scripts pass.
//
//	print TEXT      a line on stdout (error TEXT: on stderr)
//	stdin           standard input to stdout
//	args            each argument on a line of stdout
//	flood N         N bytes on stdout (as a supervisor would cap them)
//	pass LINE       an assertion that holds
//	fail LINE MSG   an assertion that fails; "fail LINE L == R" shows both sides
//	raise TYPE MSG  an uncaught exception in the text where the cue stands
//	sysexit N       SystemExit with a code
//	exit N          leave at once with a code
//	signal N        end by a signal
//	artifact PATH   a file whose content is its own path
//	file PATH       the content of a request's file to stdout
//	hang            until the end frame, then report as a supervisor does
//	deaf            hang and ignore the end frame
//	burn RATE       consume CPU from here on
//	spend MS BYTES  what the kernel counted
//	oom             be killed for memory with the whole sandbox
//	die             vanish without an exit frame
//	garble          bytes that are no frame
//	step NAME       fail a setup step before the start
//	linger MS       keep the tree alive after a kill
func ByText(ctx context.Context, s *Stage) error {
	req, err := s.ReadPlan()
	if err != nil {
		return err
	}
	p := &player{Stage: s, ctx: ctx, req: req}
	p.collect()
	if done, err := p.before(); done {
		return err
	}
	if err := s.Started(); err != nil {
		return err
	}
	return p.perform()
}

type cue struct {
	phase sandbox.Phase
	word  string
	rest  string
}

// player holds one performance of ByText.
type player struct {
	*Stage
	ctx  context.Context //nolint:containedctx // lives as long as the one play
	req  pyrunner.Request
	cues []cue

	sites  int
	failed bool
	stdout int64
	stderr int64
	begun  time.Time
}

func (p *player) collect() {
	for _, text := range []struct {
		phase sandbox.Phase
		body  string
	}{{sandbox.PhaseSolution, p.req.Solution}, {sandbox.PhaseTests, p.req.Tests}, {sandbox.PhaseProgram, p.req.Program}} {
		for line := range strings.Lines(text.body) {
			if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "#fake "); ok {
				word, args, _ := strings.Cut(rest, " ")
				p.cues = append(p.cues, cue{text.phase, word, args})
			}
		}
	}
}

// before plays the cues that come before the start.
func (p *player) before() (done bool, err error) {
	for _, c := range p.cues {
		switch c.word {
		case "step":
			return true, p.Fail(pyrunner.GuestFail{Step: c.rest, Errno: 1, Message: "scripted"})
		case "linger":
			p.Linger(time.Duration(number(c.rest)) * time.Millisecond)
		}
	}
	return false, nil
}

func (p *player) perform() error {
	p.begun = time.Now()
	if p.req.Mode == sandbox.ModeTests {
		if err := p.open(); err != nil {
			return err
		}
	}
	for _, c := range p.cues {
		over, err := p.act(c)
		if over || err != nil {
			return err
		}
	}
	if err := p.Event(map[string]any{"event": "done"}); err != nil {
		return err
	}
	return p.leave(0, 0)
}

// open reports the load and the number of assertions.
func (p *player) open() error {
	total := 0
	for _, c := range p.cues {
		if c.word == "pass" || c.word == "fail" {
			total++
		}
	}
	if err := p.Event(map[string]any{"event": "loaded"}); err != nil {
		return err
	}
	return p.Event(map[string]any{"event": "sites", "top": total, "all": total})
}

// act plays one cue; over means that the play has ended with it.
func (p *player) act(c cue) (over bool, err error) {
	switch c.word {
	case "print":
		return false, p.say("stdout", c.rest+"\n")
	case "error":
		return false, p.say("stderr", c.rest+"\n")
	case "stdin":
		return false, p.say("stdout", p.req.Stdin)
	case "args":
		return false, p.say("stdout", strings.Join(p.req.Args, "\n")+"\n")
	case "file":
		for _, f := range p.req.Files {
			if f.Path == c.rest {
				return false, p.say("stdout", f.Content)
			}
		}
		return false, nil
	case "flood":
		return false, p.flood(int64(number(c.rest)))
	case "pass", "fail":
		return false, p.assertion(c)
	case "artifact":
		p.Artifact(c.rest, []byte(c.rest))
		return false, nil
	case "burn":
		rate, _ := strconv.ParseFloat(c.rest, 64)
		p.Burn(rate)
		return false, nil
	case "spend":
		ms, bytes, _ := strings.Cut(c.rest, " ")
		p.Spend(float64(number(ms)), int64(number(bytes)))
		return false, nil
	}
	return p.finish(c)
}

// finish plays a cue that ends the run.
func (p *player) finish(c cue) (bool, error) {
	switch c.word {
	case "raise", "sysexit":
		return true, p.raise(c)
	case "exit":
		return true, p.leave(number(c.rest), 0)
	case "signal":
		return true, p.leave(-1, number(c.rest))
	case "hang":
		if err := p.WaitEnd(); err != nil {
			return true, err
		}
		return true, p.leave(-1, 9)
	case "deaf":
		<-p.ctx.Done()
		return true, nil
	case "oom":
		p.KillForMemory()
		return true, nil
	case "die":
		return true, nil
	case "garble":
		return true, p.Raw([]byte("\x00\x00\x00\x05hello"))
	}
	return false, nil
}

func (p *player) say(stream, text string) error {
	if stream == "stdout" {
		p.stdout += int64(len(text))
	} else {
		p.stderr += int64(len(text))
	}
	return p.Output(stream, []byte(text))
}

// flood forwards no more than the cap, as the supervisor does.
func (p *player) flood(n int64) error {
	p.stdout += n
	kept := min(n, p.req.Limits.OutputBytes)
	const piece = 256 << 10
	for kept > 0 {
		size := min(kept, piece)
		if err := p.Output("stdout", []byte(strings.Repeat("x", int(size)))); err != nil {
			return err
		}
		kept -= size
	}
	return nil
}

func (p *player) assertion(c cue) error {
	line, message, _ := strings.Cut(c.rest, " ")
	event := map[string]any{"event": "passed", "site": p.sites, "line": number(line)}
	p.sites++
	if c.word == "fail" {
		p.failed = true
		event["event"] = "failed"
		event["source"] = "assert " + message
		event["message"] = message
		if left, right, ok := strings.Cut(message, " == "); ok {
			event["op"], event["left"], event["right"] = "==", left, right
			event["message"] = "AssertionError (no message)"
		}
	}
	return p.Event(event)
}

func (p *player) raise(c cue) error {
	event := map[string]any{"event": "exception", "phase": c.phase}
	code := 1
	if c.word == "sysexit" {
		code = number(c.rest)
		event["type"], event["message"], event["exit_code"] = "SystemExit", c.rest, code
	} else {
		kind, message, _ := strings.Cut(c.rest, " ")
		trace := fmt.Sprintf("Traceback (most recent call last):\n  File \"%s.py\", line 1, in <module>\n%s: %s\n", c.phase, kind, message)
		event["type"], event["message"], event["traceback"] = kind, message, trace
		if err := p.say("stderr", trace); err != nil {
			return err
		}
	}
	if err := p.Event(event); err != nil {
		return err
	}
	return p.leave(code, 0)
}

func (p *player) leave(code, signal int) error {
	return p.Exit(pyrunner.Exit{
		Code: code, Signal: signal, CPUMicros: 1500, UserMicros: 1000, MaxRSSBytes: 9 << 20,
		StdoutBytes: p.stdout, StderrBytes: p.stderr,
	})
}

func number(s string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(s))
	return n
}
