package runs

import (
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/isolation"
)

// Engine is an engine with what its probe found. It does not change: a run is made
// by what was known when it was admitted.
type Engine struct {
	isolation.Engine
	Support isolation.Support
}

// engineList is the engines in the order in which they were configured. It is safe
// for concurrent use.
type engineList struct {
	mu   sync.Mutex
	list []*Engine // never written to: a probe's finding replaces it
}

func newEngineList(engines []Engine) *engineList {
	l := &engineList{}
	for _, e := range engines {
		l.list = append(l.list, &e)
	}
	return l
}

func (l *engineList) all() []*Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list
}

func (l *engineList) renew(s isolation.Support) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.list)
	for i, e := range list {
		if e.Name() == s.Engine {
			list[i] = &Engine{Engine: e.Engine, Support: s}
		}
	}
	l.list = list
}

// Unusable are the engines that runs might have, but for what their probes found.
func (m *Manager) Unusable() []*Engine {
	var out []*Engine
	for _, e := range m.planner.engines.all() {
		if _, refused := m.planner.refused(e.Name()); !refused && !e.Support.Usable {
			out = append(out, e)
		}
	}
	return out
}

// Renew replaces what the probe of one engine has found. Runs that are admitted
// from then on go by it.
func (m *Manager) Renew(s isolation.Support) { m.planner.engines.renew(s) }
