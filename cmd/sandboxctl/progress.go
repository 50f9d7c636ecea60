package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/sandboxd/sandboxd/sandbox"
)

// progress shows how an image comes, on standard error: as bars on a terminal, as
// a line for each phase elsewhere, not at all where it is to be quiet. It is safe
// for concurrent use: what is sent and what the daemon says meet here.
type progress struct {
	lines io.Writer     // nil for none
	bars  *mpb.Progress // nil for none

	mu    sync.Mutex
	phase string
	bar   *mpb.Bar
	at    int // step of a build
	ended bool
}

func (a *app) progressFor(quiet bool) *progress {
	t := a.themeFor(a.err)
	switch {
	case quiet:
		return &progress{}
	case t.fancy:
		return &progress{bars: mpb.New(mpb.WithOutput(t.out), mpb.WithWidth(40), mpb.WithAutoRefresh())}
	}
	return &progress{lines: t.out}
}

// phaseTitles say what is done, in words of one width.
var phaseTitles = map[string]string{ //nolint:gochecknoglobals // a constant
	"send": "sending", "fetch": "fetching", "build": "building", "unpack": "unpacking", "check": "checking", "sync": "writing out",
}

// show shows how far a phase is.
func (p *progress) show(at sandbox.ImageProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || (p.lines == nil && p.bars == nil) {
		return
	}
	if at.Phase != p.phase {
		p.finish(true)
		p.phase = at.Phase
		p.begin(at)
	}
	if at.Step > 0 {
		p.step(at)
		return
	}
	if p.bar != nil {
		p.bar.SetTotal(max(at.TotalBytes, at.DoneBytes+1), false) // complete is what the next phase says
		p.bar.SetCurrent(at.DoneBytes)
	}
}

// begin starts a phase. The caller holds the lock.
func (p *progress) begin(at sandbox.ImageProgress) {
	title := phaseTitles[at.Phase]
	if title == "" {
		title = oneLine(at.Phase, 20)
	}
	if p.bars == nil {
		if at.TotalBytes > 0 {
			title += " " + bytesText(at.TotalBytes)
		}
		fmt.Fprintln(p.lines, title)
		return
	}
	named := mpb.PrependDecorators(decor.Name(title, decor.WC{W: 12, C: decor.DindentRight}))
	if at.Phase == "check" || at.Phase == "sync" { // nothing to count
		p.bar = p.bars.AddSpinner(1, named)
		return
	}
	if at.Phase == "build" {
		p.bar = p.bars.AddBar(0, named, mpb.AppendDecorators(decor.CountersNoUnit("step %d of %d")))
		return
	}
	p.bar = p.bars.AddBar(at.TotalBytes, named,
		mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_MMSS)))
}

// step shows how far a build is. What its steps put out is told when one fails. The
// caller holds the lock.
func (p *progress) step(at sandbox.ImageProgress) {
	switch {
	case p.bar != nil:
		p.bar.SetTotal(int64(at.Steps)+1, false)
		p.bar.SetCurrent(int64(at.Step))
	case at.Step != p.at:
		fmt.Fprintf(p.lines, "step %d of %d: %s\n", at.Step, at.Steps, oneLine(at.Text, 100))
	}
	p.at = at.Step
}

// finish ends the phase that is shown. The caller holds the lock.
func (p *progress) finish(well bool) {
	switch {
	case p.bar == nil:
	case well:
		p.bar.SetTotal(-1, true)
	default:
		p.bar.Abort(false)
	}
	p.bar = nil
}

// end ends the phase that is shown, well or not, and waits until it is shown.
func (p *progress) end(well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(well)
	p.ended = true
	if p.bars != nil {
		p.bars.Wait()
	}
}
