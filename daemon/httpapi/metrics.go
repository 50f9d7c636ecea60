package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/isolation"
)

// statsCollector turns the manager's totals into Prometheus metrics when it is
// asked; nothing is counted twice.
type statsCollector struct {
	manager  *runs.Manager
	verdicts *prometheus.Desc
	errors   *prometheus.Desc
	live     *prometheus.Desc
	waiting  *prometheus.Desc
	phases   *prometheus.Desc
	engines  []engineMetric
}

// engineMetric is one of an engine's own figures.
type engineMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(isolation.Stats) float64
}

func newStatsCollector(m *runs.Manager) *statsCollector {
	engine := func(name, help string, kind prometheus.ValueType, value func(isolation.Stats) float64) engineMetric {
		return engineMetric{prometheus.NewDesc(name, help, []string{"engine"}, nil), kind, value}
	}
	return &statsCollector{
		manager:  m,
		verdicts: prometheus.NewDesc("sandboxd_runs_total", "Runs that ended, by verdict.", []string{"verdict"}, nil),
		errors:   prometheus.NewDesc("sandboxd_errors_total", "Requests for runs that got an error instead of a verdict, by kind.", []string{"kind"}, nil),
		live:     prometheus.NewDesc("sandboxd_live_runs", "Live runs, by state.", []string{"state"}, nil),
		waiting:  prometheus.NewDesc("sandboxd_waiting_runs", "Runs that wait for a sandbox.", nil, nil),
		phases:   prometheus.NewDesc("sandboxd_phase_seconds", "Time that runs spent in each phase.", []string{"phase"}, nil),
		engines: []engineMetric{
			engine("sandboxd_ready_sandboxes", "Sandboxes that wait for a run.", prometheus.GaugeValue,
				func(s isolation.Stats) float64 { return float64(s.Ready) }),
			engine("sandboxd_ready_sandbox_pss_bytes", "Memory of one that waits, what it shares counted in parts.", prometheus.GaugeValue,
				func(s isolation.Stats) float64 { return float64(s.ReadyBytes) }),
			engine("sandboxd_ready_taken_total", "Runs that got a sandbox which waited.", prometheus.CounterValue,
				func(s isolation.Stats) float64 { return float64(s.Taken) }),
			engine("sandboxd_ready_dry_total", "Runs that found none waiting.", prometheus.CounterValue,
				func(s isolation.Stats) float64 { return float64(s.Dry) }),
			engine("sandboxd_zygotes_total", "Interpreters booted to fork sandboxes from.", prometheus.CounterValue,
				func(s isolation.Stats) float64 { return float64(s.Zygotes) }),
			engine("sandboxd_engine_cpu_seconds_total", "CPU time of everything that the engine runs.", prometheus.CounterValue,
				func(s isolation.Stats) float64 { return s.CPUSeconds }),
		},
	}
}

// Describe implements prometheus.Collector.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.verdicts, c.errors, c.live, c.waiting, c.phases} {
		ch <- d
	}
	for _, e := range c.engines {
		ch <- e.desc
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
	for phase, h := range s.Phases {
		buckets, below := map[float64]uint64{}, uint64(0)
		for i, bound := range h.Bounds {
			below += h.Buckets[i]
			buckets[bound] = below
		}
		ch <- prometheus.MustNewConstHistogram(c.phases, h.Count, h.Sum, buckets, string(phase))
	}
	for name, stats := range s.Engines {
		for _, e := range c.engines {
			ch <- prometheus.MustNewConstMetric(e.desc, e.kind, e.value(stats), name)
		}
	}
}

// metricsHandler serves the daemon's own counters, its process's and the Go
// runtime's.
func metricsHandler(m *runs.Manager) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{newStatsCollector(m), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
