package runs

import (
	"maps"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Ready tells why no run would be taken now; nil when one would, even if it
// has to wait.
func (m *Manager) Ready() error {
	if m.live.isClosed() {
		return errDraining
	}
	_, err := m.Default()
	return err
}

// Stats are totals since the start and the state of now.
type Stats struct {
	Verdicts map[sandbox.Verdict]int64
	Errors   map[sandbox.Kind]int64
	Live     map[State]int
	Waiting  int
	Engines  map[string]isolation.Stats // of the engines that keep figures
	Phases   map[Phase]Histogram        // of the runs that started
}

// counted is an engine that keeps figures of its own.
type counted interface{ Stats() isolation.Stats }

// Stats counts.
func (m *Manager) Stats() Stats {
	s := Stats{Live: map[State]int{}, Waiting: m.queue.waiting()}
	for _, e := range m.live.all() {
		e.mu.Lock()
		s.Live[e.state]++
		e.mu.Unlock()
	}
	s.Phases = m.phases.all()
	s.Engines = map[string]isolation.Stats{}
	for _, e := range m.planner.engines.all() {
		if c, ok := e.Engine.(counted); ok {
			s.Engines[e.Name()] = c.Stats()
		}
	}
	m.counts.mu.Lock()
	defer m.counts.mu.Unlock()
	s.Verdicts, s.Errors = maps.Clone(m.counts.verdicts), maps.Clone(m.counts.errors)
	return s
}
