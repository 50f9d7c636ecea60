package pyrunner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Frame sizes in bytes, header not counted. What the daemon sends may hold a
// whole request (8 MiB of body, up to twice that once escaped); what the guest
// sends is cut into pieces by the supervisor.
const (
	MaxFrameToGuest   = 48 << 20
	MaxFrameFromGuest = 1 << 20
)

// FrameType names what a frame carries.
type FrameType string

// Frames from the daemon.
const (
	FrameBoot   FrameType = "boot"   // guest sources and configuration, first of all
	FramePlan   FrameType = "plan"   // what to run, once
	FrameEnd    FrameType = "end"    // kill the program and report
	FrameLimits FrameType = "limits" // resource limits of the run, before its plan
)

// Frames from the guest.
const (
	FrameHello    FrameType = "hello"    // the sandbox is ready
	FrameError    FrameType = "error"    // a setup step failed; nothing untrusted has run
	FrameStarted  FrameType = "started"  // from here on the guest is hostile
	FrameOutput   FrameType = "output"   // bytes of stdout or stderr
	FrameReport   FrameType = "report"   // bytes of the program's event channel
	FrameArtifact FrameType = "artifact" // a file of the workspace
	FrameExit     FrameType = "exit"     // how the program ended
	FrameDone     FrameType = "done"     // nothing follows: artifacts have been sent
)

// ErrFrame marks bytes that are no frame of this protocol.
var ErrFrame = errors.New("frame protocol broken")

// errCut marks a stream that ended within a frame: its writer died. That is no
// breach of the protocol, because the kernel may have killed it for memory.
var errCut = errors.New("stream ended within a frame")

// frame is the union of all frames; Type says which fields count.
type frame struct {
	Type FrameType `json:"type"`

	Plan    *Request `json:"plan,omitempty"`
	Boot    *Boot    `json:"boot,omitempty"`
	Rlimits []Rlimit `json:"rlimits,omitempty"`

	Stream string `json:"stream,omitempty"` // output: stdout or stderr; tail bytes follow a cut
	Data   []byte `json:"data,omitempty"`
	Tail   bool   `json:"tail,omitempty"`

	Path string `json:"path,omitempty"`
	Size int64  `json:"size,omitempty"`
	More bool   `json:"more,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // done: some artifacts were left out

	Hello *Hello     `json:"hello,omitempty"`
	Error *GuestFail `json:"error,omitempty"`
	Exit  *Exit      `json:"exit,omitempty"`
}

// Hello is what a supervisor says of itself when its sandbox is ready.
type Hello struct {
	Python string `json:"python"` // version: "3.11.2"
	Arch   string `json:"arch"`   // as uname(2) gives it: "x86_64"
}

// StepWriteFile begins the name of the one setup step that the request can make
// fail: the file's path follows.
const StepWriteFile = "write file "

// GuestFail is a setup step that failed before anything untrusted ran.
type GuestFail struct {
	Step    string `json:"step"`
	Index   int    `json:"index"`
	Errno   int    `json:"errno"`
	Message string `json:"message"`
}

// Exit is the supervisor's account of the program's end.
type Exit struct {
	Code        int    `json:"code"`   // exit code, -1 when a signal ended it
	Signal      int    `json:"signal"` // 0 when it left by itself
	CPUMicros   int64  `json:"cpu_us"`
	UserMicros  int64  `json:"user_us"`
	MaxRSSBytes int64  `json:"max_rss_bytes"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Note        string `json:"note,omitempty"`
}

// writeFrame writes one frame: its length as four bytes, most significant
// first, then JSON.
func writeFrame(w io.Writer, f *frame, limit int) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode %s frame: %w", f.Type, err)
	}
	if len(body) > limit {
		return fmt.Errorf("%w: %s frame of %d bytes is over %d", ErrFrame, f.Type, len(body), limit)
	}
	buf := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(buf, uint32(len(body))) //nolint:gosec // bounded by limit above
	_, err = w.Write(append(buf, body...))
	return err
}

// readFrame reads one frame. It returns io.EOF only between frames and errCut
// within one; everything else that is no frame is ErrFrame, except the reader's
// own errors.
func readFrame(r io.Reader, limit int) (*frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: in its header", errCut)
		}
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: length %d", ErrFrame, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: after its header", errCut)
		}
		return nil, err
	}
	var f frame
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return &f, nil
}
