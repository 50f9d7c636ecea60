package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// SocketVariable names the environment variable that holds the socket's path.
const SocketVariable = "SANDBOXD_SOCKET"

// maxAnswer bounds an answer: two streams and the artifacts at their ceilings,
// escaped.
const maxAnswer = 256 << 20

// DefaultSocket is the socket of $SANDBOXD_SOCKET, or of the system's daemon for
// root, or of the user's own.
func DefaultSocket() string {
	if path := os.Getenv(SocketVariable); path != "" {
		return path
	}
	const name = "sandboxd/sandboxd.sock"
	if os.Geteuid() == 0 {
		return filepath.Join("/run", name)
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run == "" {
		run = os.TempDir()
	}
	return filepath.Join(run, name)
}

// Client talks to one daemon. It keeps connections alive and is safe for
// concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New makes a client of the daemon at socket; it does not connect yet.
func New(socket string) *Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		// A daemon that takes longer to refuse an archive is sent it.
		ExpectContinueTimeout: 5 * time.Second,
	}
	return &Client{socket: socket, http: &http.Client{Transport: transport}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Socket is the path that the client connects to.
func (c *Client) Socket() string { return c.socket }

// Run runs a spec to its end. Canceling ctx cancels the run.
func (c *Client) Run(ctx context.Context, spec sandbox.Spec) (sandbox.Result, error) {
	var res sandbox.Result
	err := c.call(ctx, http.MethodPost, "/v1/runs", spec, &res)
	return res, err
}

// RunRaw is Run with the answer as it came.
func (c *Client) RunRaw(ctx context.Context, spec sandbox.Spec) (json.RawMessage, error) {
	var raw json.RawMessage
	err := c.call(ctx, http.MethodPost, "/v1/runs", spec, &raw)
	return raw, err
}

// ListRuns lists the caller's live runs.
func (c *Client) ListRuns(ctx context.Context) ([]Run, error) {
	var out struct {
		Runs []Run `json:"runs"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/runs", nil, &out)
	return out.Runs, err
}

// Cancel ends a live run.
func (c *Client) Cancel(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/runs/"+url.PathEscape(id), nil, nil)
}

// Info tells what the daemon is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var out Info
	err := c.call(ctx, http.MethodGet, "/v1/info", nil, &out)
	return out, err
}

// Doctor tells how the daemon's engines stand.
func (c *Client) Doctor(ctx context.Context) (Doctor, error) {
	var out Doctor
	err := c.call(ctx, http.MethodGet, "/v1/doctor", nil, &out)
	return out, err
}

// Health tells why the daemon takes no runs; nil when it does.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil)
}

// call sends in, if any, and decodes the answer into out, if any.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := encode(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sandboxd"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.connectError(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return problemOf(resp, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return buf.Bytes(), err
}

// ErrNoDaemon says that nobody answers on the socket.
var ErrNoDaemon = errors.New("no sandboxd answers")

func (c *Client) connectError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w on %s: %w", ErrNoDaemon, c.socket, op.Err)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("talk to sandboxd on %s: %w", c.socket, err)
}

// problemOf makes the error of an answer that is none of success.
func problemOf(resp *http.Response, text []byte) error {
	p := &Problem{Status: resp.StatusCode, Code: sandbox.KindInternal, Detail: resp.Status}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && (kind == "application/problem+json" || kind == "application/json") {
		_ = json.Unmarshal(text, p) // what cannot be read leaves the status
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return p
}
