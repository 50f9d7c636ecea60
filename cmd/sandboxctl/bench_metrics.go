package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// The metrics of the daemon that a bench reads. Where one is missing the figure
// is missing too.
const (
	metricDaemonCPU   = "process_cpu_seconds_total"
	metricDaemonRSS   = "process_resident_memory_bytes"
	metricEngineCPU   = "sandboxd_engine_cpu_seconds_total"
	metricReadyMemory = "sandboxd_ready_sandbox_pss_bytes"
	metricReady       = "sandboxd_ready_sandboxes"
)

// daemonMetrics is one reading of /metrics.
type daemonMetrics map[string]float64

// parseMetrics reads the Prometheus text format, without time stamps. Keys are
// a name and its labels as they stand.
func parseMetrics(text []byte) daemonMetrics {
	m := daemonMetrics{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			m[strings.TrimSpace(line[:at])] = v
		}
	}
	return m
}

// of is a metric of the whole daemon; nil when it is missing.
func (m daemonMetrics) of(name string) *float64 {
	v, ok := m[name]
	if !ok {
		return nil
	}
	return &v
}

// ofEngine is a metric of one engine, with any further labels added up.
func (m daemonMetrics) ofEngine(name, engine string) *float64 {
	var total *float64
	label := fmt.Sprintf("engine=%q", engine)
	for key, v := range m {
		rest, ok := strings.CutPrefix(key, name+"{")
		if ok && strings.Contains("{"+rest, label) {
			total = sum(&v, or(total, 0))
		}
	}
	return total
}

func or(v *float64, otherwise float64) *float64 {
	if v == nil {
		return &otherwise
	}
	return v
}

// scrape reads the daemon's metrics; a daemon that shows none has none.
func (c *benchCaller) scrape(ctx context.Context) (daemonMetrics, error) {
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	a, err := conn.get("/metrics")
	if err != nil || a.status != http.StatusOK {
		return nil, err
	}
	return parseMetrics(conn.body.Bytes()), nil
}

// cpuUsage is CPU time so far, in seconds: the daemon's, its engine's, this
// program's.
type cpuUsage struct{ daemon, engine, client *float64 }

func (c *benchCaller) usage(ctx context.Context) (cpuUsage, error) {
	m, err := c.scrape(ctx)
	return cpuUsage{m.of(metricDaemonCPU), m.ofEngine(metricEngineCPU, c.engine), ownCPU()}, err
}

// charge puts on o what was used from before to after.
func (o *benchOurs) charge(before, after cpuUsage) {
	o.DaemonCPU = perRun(difference(after.daemon, before.daemon), o.Runs)
	o.EngineCPU = perRun(difference(after.engine, before.engine), o.Runs)
	o.ClientCPU = perRun(difference(after.client, before.client), o.Runs)
	o.CPU = sum(o.DaemonCPU, o.EngineCPU)
}

func difference(after, before *float64) *float64 {
	if after == nil || before == nil {
		return nil
	}
	d := *after - *before
	return &d
}

// ownCPU reads user and system time from proc_pid_stat(5), in ticks of 10 ms;
// nil where there is no such file.
func ownCPU() *float64 {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ") // a name may have spaces
	fields := strings.Fields(rest)
	const user, system = 11, 12 // of the fields after the name
	if len(fields) <= system {
		return nil
	}
	u, errUser := strconv.ParseFloat(fields[user], 64)
	s, errSystem := strconv.ParseFloat(fields[system], 64)
	if errUser != nil || errSystem != nil {
		return nil
	}
	seconds := (u + s) / 100
	return &seconds
}
