package main

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// load is how much a round asks for: clients at once, each with one run after
// the other, until so many runs were begun (0: any number) or the time is over.
type load struct {
	clients int
	runs    int
	span    time.Duration // 0: no end
}

// benchCaller sends runs to one daemon and checks what comes back.
type benchCaller struct {
	socket   string
	engine   string
	required []sandbox.Layer
}

// benchClient is one of a load's clients, with a connection of its own.
type benchClient struct {
	conn      *connection
	check     checker
	latencies []float64
	refused   int
	ready     int
	told      bool // the daemon says whether a sandbox was ready
}

func (c *benchCaller) client(ctx context.Context) (*benchClient, error) {
	conn, err := dial(ctx, c.socket)
	return &benchClient{conn: conn, check: checker{engine: c.engine, required: c.required}}, err
}

// run makes one run; a daemon that is full is asked again when it wants to be.
func (c *benchClient) run(request []byte) (benchResult, time.Duration, error) {
	for {
		a, err := c.conn.send(request)
		switch {
		case err != nil && c.conn.ctx.Err() == nil:
			return benchResult{}, 0, wrongf("no answer: %v", err)
		case err != nil:
			return benchResult{}, 0, err
		}
		switch a.status {
		case http.StatusOK:
			r, err := c.check.check(c.conn.body.Bytes())
			return r, a.latency, err
		case http.StatusTooManyRequests:
			c.refused++
			if err := pause(c.conn.ctx, a.retryAfter()); err != nil {
				return benchResult{}, 0, err
			}
		default:
			return benchResult{}, 0, wrongf("answer %d instead of a result: %.500s", a.status, c.conn.body.String())
		}
	}
}

// record is run, kept as a sample.
func (c *benchClient) record(request []byte) error {
	r, latency, err := c.run(request)
	if err != nil {
		return err
	}
	c.latencies = append(c.latencies, millis(latency))
	if r.Usage.Ready != nil {
		c.told = true
		if *r.Usage.Ready {
			c.ready++
		}
	}
	return nil
}

// drive runs a load to its end. All connections are made before the clock starts.
func (c *benchCaller) drive(ctx context.Context, request []byte, l load) (benchOurs, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clients := make([]*benchClient, l.clients)
	for i := range clients {
		one, err := c.client(ctx)
		if err != nil {
			return benchOurs{}, err
		}
		defer one.conn.close()
		clients[i] = one
	}
	var begun atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	more := func() bool { return l.span == 0 || time.Since(begin) < l.span }
	for _, one := range clients {
		all.Go(func() {
			for first := true; first || more(); first = false {
				if n := begun.Add(1); l.runs > 0 && n > int64(l.runs) {
					return
				}
				if err := one.record(request); err != nil {
					cancel(err) // the first one is the cause of all
					return
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(begin)
	if ctx.Err() != nil {
		return benchOurs{}, context.Cause(ctx)
	}
	return gather(clients, elapsed), nil
}

// gather sums up what all clients saw.
func gather(clients []*benchClient, elapsed time.Duration) benchOurs {
	var latencies []float64
	var o benchOurs
	ready, told := 0, false
	for _, c := range clients {
		latencies = append(latencies, c.latencies...)
		o.Refused += c.refused
		ready += c.ready
		told = told || c.told
	}
	o.benchSide = sideOf(latencies, elapsed)
	if told {
		o.Ready = &ready
	}
	return o
}
