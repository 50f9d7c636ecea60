package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/sandbox"
)

// The media types of an import.
const (
	archiveType = "application/x-tar"
	eventsType  = "application/x-ndjson"
)

// ImageEvent is one line of the answer to an import. Exactly one field is set.
type ImageEvent struct {
	Progress *sandbox.ImageProgress `json:"progress,omitempty"`
	Image    *catalog.Entry         `json:"image,omitempty" doc:"It is in the store: the last line"`
	Problem  *Problem               `json:"problem,omitempty" doc:"It is not: the last line"`
}

// problemOf is what went wrong in an answer that has begun.
func (a *API) problemOf(ctx context.Context, err error) *Problem {
	var p *Problem
	if !errors.As(problem(ctx, a.cfg.Logger, err), &p) {
		p = fromSchema(http.StatusInternalServerError, "the daemon failed", nil)
	}
	return p
}

// eventStream writes an import's lines. The status is sent with the first one.
type eventStream struct {
	w        http.ResponseWriter
	withhold string // the phase whose progress is not told
	began    bool
}

// progress tells of progress. A source that is only being asked has made none:
// its refusal may still become the answer's status.
func (s *eventStream) progress(p sandbox.ImageProgress) error {
	if p.Phase == s.withhold || (!s.began && p.Phase == phaseFetch && p.DoneBytes == 0) {
		return nil
	}
	return s.send(ImageEvent{Progress: &p})
}

// send writes one line. Each has its time to be received.
func (s *eventStream) send(e ImageEvent) error {
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", eventsType)
		s.w.WriteHeader(http.StatusOK)
	}
	conn := http.NewResponseController(s.w)
	_ = conn.SetWriteDeadline(time.Now().Add(answerTime)) // not every writer of a test has one
	if err := json.NewEncoder(s.w).Encode(e); err != nil {
		return err
	}
	return conn.Flush()
}

// archive is a request's body on its way into the store. It ends when nothing
// arrives for bodyTime, so that a client that stops cannot keep others waiting.
type archive struct {
	body io.Reader
	conn *http.ResponseController

	mu          sync.Mutex
	interrupted bool
	eof         bool
}

// Read implements io.Reader. Its errors say whose they are.
func (a *archive) Read(p []byte) (int, error) {
	if !a.extend() {
		return 0, errImportEnded()
	}
	n, err := a.body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		a.finish()
		return n, err
	case !a.extend(): // Interrupt's deadline, or what it was called for
		return n, errImportEnded()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, sandbox.Errorf(sandbox.KindInvalid, "read archive", "body", "nothing arrived for %s", bodyTime)
	}
	return n, sandbox.Errorf(sandbox.KindCanceled, "read archive", "body", "the archive ended early")
}

func errImportEnded() error {
	return sandbox.Errorf(sandbox.KindCanceled, "read archive", "body", "the import has ended")
}

// extend gives the next bytes their time, unless the import is over.
func (a *archive) extend() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.interrupted && !a.eof {
		_ = a.conn.SetReadDeadline(time.Now().Add(bodyTime)) // not every writer of a test has one
	}
	return !a.interrupted
}

// finish takes the deadline off: from now on the connection is watched for the
// client's leaving.
func (a *archive) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.eof = true
	_ = a.conn.SetReadDeadline(time.Time{}) // as in extend
}

// Interrupt implements catalog.Archive.
func (a *archive) Interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.interrupted = true
	if !a.eof {
		_ = a.conn.SetReadDeadline(time.Now()) // as in extend
	}
}

func (a *archive) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.eof
}
