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

	"github.com/sandboxd/sandboxd/sandbox"
)

const (
	// MaxBody is the largest request body.
	MaxBody = 8 << 20
	// maxBodies is what all requests may hold at once.
	maxBodies = 256 << 20
	// bodyTime is how long a client may take to send it.
	bodyTime = 30 * time.Second
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
		if err := checkType(r.Header.Get("Content-Type")); err != nil {
			a.refuse(w, r, err)
			return
		}
		release, err := a.reserve(r.ContentLength)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		defer release()
		body, err := slurp(w, r)
		if err != nil {
			a.refuse(w, r, err)
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

// reserve takes room for a body in what all bodies may hold at once, until its
// request is answered: waiting runs would otherwise hold 8 MiB each.
func (a *API) reserve(length int64) (release func(), err error) {
	if length < 0 || length > MaxBody {
		length = MaxBody
	}
	if !a.bodies.TryAcquire(length) {
		return nil, sandbox.Errorf(sandbox.KindExhausted, "admit", "", "requests that wait hold %d MiB already", maxBodies>>20)
	}
	return func() { a.bodies.Release(length) }, nil
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
func slurp(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // not every writer of a test has one
	defer conn.SetReadDeadline(time.Time{})            //nolint:errcheck // likewise
	if r.ContentLength > MaxBody {
		discard(r.Body)
		return nil, tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	switch {
	case err == nil && len(body) > MaxBody:
		discard(r.Body)
		return nil, tooLarge()
	case err == nil:
		return body, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, plainProblem(http.StatusRequestTimeout, "body", "the body did not arrive in time")
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
