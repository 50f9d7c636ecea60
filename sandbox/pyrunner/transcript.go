package pyrunner

import (
	"fmt"

	"github.com/sandboxd/sandboxd/sandbox"
)

// transcript takes the frames of one run in order and keeps no more than the
// limits allow, whatever the guest sends.
type transcript struct {
	limits   sandbox.Limits
	started  bool
	exited   bool // the exit frame came
	closed   bool // the done frame came
	cut      bool // some artifacts were left out
	breach   error
	exit     Exit
	stdout   capture
	stderr   capture
	report   *reportReader
	files    []sandbox.Artifact
	fileRest int64 // bytes that artifacts may still bring
	fileOpen bool  // the last artifact frame said More
}

func newTranscript(limits sandbox.Limits, nonce string) *transcript {
	return &transcript{
		limits:   limits,
		stdout:   newCapture(limits.OutputBytes),
		stderr:   newCapture(limits.OutputBytes),
		report:   newReportReader(nonce),
		fileRest: limits.ArtifactBytes,
	}
}

// take accepts one frame or says how it breaks the protocol (ErrFrame).
func (t *transcript) take(f *frame, c *Conversation) error {
	switch {
	case !t.started:
		return t.takeFirst(f, c.OnStart)
	case !t.exited:
		return t.takeRunning(f, c.OnExit)
	}
	switch f.Type {
	case FrameArtifact:
		return t.takeArtifact(f)
	case FrameDone:
		t.closed, t.cut = true, f.Cut
		return nil
	case FrameBoot, FrameLimits, FramePlan, FrameEnd, FrameHello, FrameError, FrameStarted, FrameOutput, FrameReport, FrameExit:
	}
	return fmt.Errorf("%w: %q frame after the exit", ErrFrame, clip(string(f.Type), 32))
}

func (t *transcript) takeRunning(f *frame, onExit func()) error {
	switch f.Type {
	case FrameOutput:
		return t.takeOutput(f)
	case FrameReport:
		return t.report.write(f.Data)
	case FrameExit:
		if f.Exit == nil {
			return fmt.Errorf("%w: empty exit frame", ErrFrame)
		}
		t.exit, t.exited = *f.Exit, true
		if onExit != nil {
			onExit()
		}
		return nil
	case FrameBoot, FrameLimits, FramePlan, FrameEnd, FrameHello, FrameError, FrameStarted, FrameArtifact, FrameDone:
	}
	return fmt.Errorf("%w: %q frame after the start", ErrFrame, clip(string(f.Type), 32))
}

func (t *transcript) takeFirst(f *frame, onStart func()) error {
	switch {
	case f.Type == FrameStarted:
		t.started = true
		if onStart != nil {
			onStart()
		}
		return nil
	case f.Type == FrameError && f.Error != nil:
		return stepError(f.Error)
	}
	return fmt.Errorf("%w: %q frame before the start", ErrFrame, clip(string(f.Type), 32))
}

func (t *transcript) takeOutput(f *frame) error {
	c := &t.stdout
	switch f.Stream {
	case "stdout":
	case "stderr":
		c = &t.stderr
	default:
		return fmt.Errorf("%w: output of stream %q", ErrFrame, clip(f.Stream, 16))
	}
	return c.add(f.Data, f.Tail)
}

func (t *transcript) takeArtifact(f *frame) error {
	if !t.fileOpen {
		if int64(len(t.files)) >= t.limits.ArtifactCount {
			return fmt.Errorf("%w: more artifacts than %d", ErrFrame, t.limits.ArtifactCount)
		}
		if f.Path == "" || len(f.Path) > 4096 {
			return fmt.Errorf("%w: artifact without a usable path", ErrFrame)
		}
		t.files = append(t.files, sandbox.Artifact{Path: f.Path, Content: []byte{}})
	}
	t.fileRest -= int64(len(f.Data))
	if t.fileRest < 0 {
		return fmt.Errorf("%w: artifacts over %d bytes", ErrFrame, t.limits.ArtifactBytes)
	}
	file := &t.files[len(t.files)-1]
	file.Content = append(file.Content, f.Data...)
	file.Size = int64(len(file.Content))
	t.fileOpen = f.More
	return nil
}

func (t *transcript) broken(err error) { t.breach = err }

// ending sums the transcript up. A breach before the exit leaves the facts
// unknown: the keeper kills the sandbox, and the verdict is crashed for its
// protocol. After it the facts stand, and only artifacts are missing.
func (t *transcript) ending() Ending {
	e := Ending{
		Report:       t.report.finish(),
		Stdout:       t.stdout.output(t.exit.StdoutBytes),
		Stderr:       t.stderr.output(t.exit.StderrBytes),
		Artifacts:    t.files,
		ArtifactsCut: t.cut || t.exited && !t.closed,
	}
	o := &e.Outcome
	o.Started = t.started
	o.Lost = !t.exited
	if t.breach != nil && !t.exited {
		o.Stopped = sandbox.StopProtocol
	}
	if t.exited {
		o.Exited = t.exit.Signal == 0
		o.ExitCode = t.exit.Code
		o.Signal = t.exit.Signal
	}
	o.Usage.CPUMillis = float64(t.exit.CPUMicros) / 1000
	o.Usage.UserMillis = float64(t.exit.UserMicros) / 1000
	o.Usage.SystemMillis = o.Usage.CPUMillis - o.Usage.UserMillis
	o.Usage.MemoryPeakBytes = t.exit.MaxRSSBytes
	o.Usage.StdoutBytes = e.Stdout.Total
	o.Usage.StderrBytes = e.Stderr.Total
	return e
}
