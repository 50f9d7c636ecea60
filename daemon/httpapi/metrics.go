package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandboxd/sandboxd/daemon/runs"
)

// statsCollector turns the manager's totals into Prometheus metrics when it is
// asked; nothing is counted twice.
type statsCollector struct {
	manager  *runs.Manager
	verdicts *prometheus.Desc
	errors   *prometheus.Desc
	live     *prometheus.Desc
	waiting  *prometheus.Desc
}

func newStatsCollector(m *runs.Manager) *statsCollector {
	return &statsCollector{
		manager:  m,
		verdicts: prometheus.NewDesc("sandboxd_runs_total", "Runs that ended, by verdict.", []string{"verdict"}, nil),
		errors:   prometheus.NewDesc("sandboxd_errors_total", "Requests for runs that got an error instead of a verdict, by kind.", []string{"kind"}, nil),
		live:     prometheus.NewDesc("sandboxd_live_runs", "Live runs, by state.", []string{"state"}, nil),
		waiting:  prometheus.NewDesc("sandboxd_waiting_runs", "Runs that wait for a sandbox.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.verdicts, c.errors, c.live, c.waiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.manager.Stats()
	for verdict, n := range s.Verdicts {
		ch <- prometheus.MustNewConstMetric(c.verdicts, prometheus.CounterValue, float64(n), string(verdict))
	}
	for kind, n := range s.Errors {
		ch <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(n), string(kind))
	}
	for _, state := range []runs.State{runs.Queued, runs.Preparing, runs.Running, runs.Ending} {
		ch <- prometheus.MustNewConstMetric(c.live, prometheus.GaugeValue, float64(s.Live[state]), string(state))
	}
	ch <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(s.Waiting))
}

// metricsHandler serves the daemon's own counters and the Go runtime's.
func metricsHandler(m *runs.Manager) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{newStatsCollector(m), collectors.NewGoCollector()} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
