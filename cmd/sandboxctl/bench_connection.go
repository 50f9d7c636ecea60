package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sandboxd/sandboxd/internal/apiclient"
)

// connection is one kept-alive connection, for one client. It writes and reads
// HTTP itself: http.Transport hands each request through two goroutines, and
// their time would be taken from the daemon's processors.
type connection struct {
	ctx    context.Context //nolint:containedctx // lives as long as the one connection
	socket string

	conn    net.Conn
	reader  *bufio.Reader
	release func() bool

	body bytes.Buffer // of the last answer
}

// dial connects. Canceling ctx ends whatever the connection waits for.
func dial(ctx context.Context, socket string) (*connection, error) {
	c := &connection{ctx: ctx, socket: socket}
	return c, c.open()
}

func (c *connection) open() error {
	conn, err := (&net.Dialer{}).DialContext(c.ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("%w on %s: %w", apiclient.ErrNoDaemon, c.socket, err)
	}
	c.conn, c.reader = conn, bufio.NewReaderSize(conn, 16<<10)
	c.release = context.AfterFunc(c.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

func (c *connection) close() {
	if c.conn != nil {
		c.release()
		_ = c.conn.Close()
	}
}

// answered is what came back of a request, beside the body.
type answered struct {
	status  int
	header  http.Header
	latency time.Duration // from the first byte written to the last one read
}

// send sends one prepared request and reads the whole answer into c.body.
func (c *connection) send(request []byte) (answered, error) {
	begin := time.Now()
	a, closing, err := c.exchange(request)
	a.latency = time.Since(begin)
	if c.ctx.Err() != nil {
		return a, context.Cause(c.ctx)
	}
	if err == nil && closing {
		c.close()
		err = c.open()
	}
	return a, err
}

func (c *connection) exchange(request []byte) (a answered, closing bool, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return a, false, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return a, false, fmt.Errorf("read answer: %w", err)
	}
	c.body.Reset()
	_, err = c.body.ReadFrom(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		err = fmt.Errorf("read answer: %w", err)
	}
	return answered{status: resp.StatusCode, header: resp.Header}, resp.Close, err
}

// get reads one resource.
func (c *connection) get(path string) (answered, error) {
	return c.send([]byte("GET " + path + " HTTP/1.1\r\nHost: sandboxd\r\n\r\n"))
}

// retryAfter is how long a daemon that is full wants to be left alone.
func (a answered) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return time.Second
	}
	return time.Duration(seconds) * time.Second
}

// pause waits, or ends with ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
