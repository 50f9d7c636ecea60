package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sandboxd/sandboxd/sandbox"
)

const (
	// MaxBody is the largest request body.
	MaxBody = 8 << 20
	// maxBodies is what all requests may hold at once.
	maxBodies = 256 << 20
	// bodyTime is how long a client may take to send it.
	bodyTime = 30 * time.Second
	// lingerTime is how long the rest of a refused one is taken in.
	lingerTime = time.Second
)

type foundKey struct{}

// foundIn gives what scan found in the request's body.
func foundIn(ctx context.Context) found {
	f, _ := ctx.Value(foundKey{}).(found)
	return f
}

// readBody reads, bounds and scans the body of requests that have one, and
// hands it on from memory.
func (a *API) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPost && r.URL.Path == importPath {
			a.passArchive(w, r, next)
			return
		}
		if err := checkType(r.Header.Get("Content-Type")); err != nil {
			a.refuse(w, r, err)
			return
		}
		room := &room{pool: a.bodies}
		defer room.release()
		body, err := slurp(w, r, room)
		if err != nil {
			a.refuse(w, r, err)
			leave(w)
			return
		}
		what, err := scan(body)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), foundKey{}, what))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// passArchive leaves a body where it is: it is read as it is stored.
func (a *API) passArchive(w http.ResponseWriter, r *http.Request, next http.Handler) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != archiveType {
		a.refuse(w, r, plainProblem(http.StatusUnsupportedMediaType, "header.Content-Type", "the body must be "+archiveType))
		leave(w)
		return
	}
	next.ServeHTTP(w, r)
}

// room is what one body takes of what all bodies may hold at once, until its
// request is answered: waiting runs would otherwise hold 8 MiB each. It is taken
// as bytes arrive, so that a body which is announced and never sent takes none.
type room struct {
	pool  *semaphore.Weighted
	taken int64
}

func (r *room) take(n int) error {
	if !r.pool.TryAcquire(int64(n)) {
		return sandbox.Errorf(sandbox.KindExhausted, "admit", "", "requests that wait hold %d MiB already", maxBodies>>20)
	}
	r.taken += int64(n)
	return nil
}

func (r *room) release() { r.pool.Release(r.taken) }

// meter reads a body into its room.
type meter struct {
	body io.Reader
	room *room
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.body.Read(p)
	if full := m.room.take(n); full != nil {
		return 0, full
	}
	return n, err
}

// leave has a refusal sent at once and gives up on the rest of the body: the
// server would wait for it before it sends anything.
func leave(w http.ResponseWriter) {
	conn := http.NewResponseController(w)
	_ = conn.Flush()                                     // not every writer of a test can
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime)) // likewise
}

func checkType(header string) error {
	kind, params, err := mime.ParseMediaType(header)
	if err != nil || kind != "application/json" {
		return plainProblem(http.StatusUnsupportedMediaType, "header.Content-Type", "the body must be application/json")
	}
	if set, ok := params["charset"]; ok && !bytes.EqualFold([]byte(set), []byte("utf-8")) {
		return plainProblem(http.StatusUnsupportedMediaType, "header.Content-Type", "JSON is UTF-8")
	}
	return nil
}

// slurp reads the body within its time. The deadline is taken off again before
// the handler runs: the connection is then watched for the client's leaving.
func slurp(w http.ResponseWriter, r *http.Request, room *room) ([]byte, error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // not every writer of a test has one
	defer conn.SetReadDeadline(time.Time{})            //nolint:errcheck // likewise
	if r.ContentLength > MaxBody {
		discard(r.Body)
		return nil, tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(meter{r.Body, room}, MaxBody+1))
	switch {
	case err == nil && len(body) > MaxBody:
		discard(r.Body)
		return nil, tooLarge()
	case err == nil:
		return body, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, plainProblem(http.StatusRequestTimeout, "body", "the body did not arrive in time")
	}
	if full, ok := errors.AsType[*sandbox.Error](err); ok {
		return nil, full
	}
	return nil, badBody("body", "the body ended early")
}

// discard takes in the rest of a body that is too large, up to a bound: clients
// that only read the answer once they have sent everything would not see it.
func discard(body io.Reader) {
	_, _ = io.CopyN(io.Discard, body, 8*MaxBody) // what comes after is cut off
}

func tooLarge() *Problem {
	return plainProblem(http.StatusRequestEntityTooLarge, "body", "the body is larger than 8 MiB")
}

func plainProblem(status int, location, message string) *Problem {
	p := badBody(location, "%s", message)
	p.Status, p.Title, p.Code = status, title(status), string(kindOf(status))
	return p
}
