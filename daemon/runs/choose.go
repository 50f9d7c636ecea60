package runs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/sandbox"
)

// MissingLayersError says which required layers an engine does not hold here.
type MissingLayersError struct {
	Engine  string
	Missing []sandbox.LayerReport
}

func (e *MissingLayersError) Error() string {
	parts := make([]string, 0, len(e.Missing))
	for _, l := range e.Missing {
		parts = append(parts, describeLayer(l))
	}
	return fmt.Sprintf("engine %s does not hold %s", e.Engine, strings.Join(parts, "; "))
}

func describeLayer(l sandbox.LayerReport) string {
	text := string(l.Layer)
	if l.Reason != "" {
		text += ": " + l.Reason
	}
	if l.State == sandbox.LayerNotApplicable && l.Reason == "" {
		text += ": the engine is not made of it"
	}
	if l.Mend != "" {
		text += " (" + l.Mend + ")"
	}
	return text
}

// can tells whether e enforces the limit. Silence is a no.
func (e *Engine) can(limit string) bool {
	return e.Support.Limits[limit] == isolation.Enforced
}

// choose gives the engine for a request and the layers that it has to hold.
func (p *planner) choose(name string, wanted []sandbox.Layer) (*Engine, []sandbox.Layer, error) {
	for i, l := range wanted {
		if !sandbox.KnownLayer(l) {
			return nil, nil, sandbox.Errorf(sandbox.KindInvalid, "admit", fmt.Sprintf("require_layers[%d]", i), "no layer is called %.64q", string(l))
		}
	}
	if name == "" {
		name = p.cfg.DefaultEngine
	}
	if name == "" || name == Auto {
		return p.strongest(wanted)
	}
	e := p.engine(name)
	mend, refused := p.cfg.Refused[name]
	switch {
	case e == nil:
		return nil, nil, sandbox.Errorf(sandbox.KindInvalid, "admit", "engine", "no engine is called %.64q; known: %s", name, strings.Join(p.names(), ", "))
	case refused:
		err := sandbox.Errorf(sandbox.KindDenied, "admit", "engine", "the configuration does not allow engine %s", name)
		err.Mend = mend
		return nil, nil, err
	}
	require, err := p.fit(e, wanted)
	return e, require, err
}

// strongest takes the first engine of the configured order that holds what is
// required. When none does, the first one's shortcoming is the answer.
func (p *planner) strongest(wanted []sandbox.Layer) (*Engine, []sandbox.Layer, error) {
	var first error
	for _, name := range p.cfg.EngineOrder {
		e := p.engine(name)
		if _, refused := p.cfg.Refused[name]; e == nil || refused {
			continue
		}
		require, err := p.fit(e, wanted)
		if err == nil {
			return e, require, nil
		}
		if first == nil || sandbox.KindOf(first) == sandbox.KindUnavailable {
			first = err
		}
	}
	if first == nil {
		first = &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "admit", Subject: "engine", Err: errors.New("no engine is configured")}
	}
	return nil, nil, first
}

// fit gives the layers that e has to hold, or why it cannot serve.
func (p *planner) fit(e *Engine, wanted []sandbox.Layer) ([]sandbox.Layer, error) {
	if !e.Support.Usable {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "admit", "engine", "engine %s is not usable: %s", e.Name(), e.Support.Reason)
	}
	require := p.required(e.Name())
	for _, l := range wanted {
		if !slices.Contains(require, l) {
			require = append(require, l)
		}
	}
	if missing := e.Support.Missing(require); len(missing) > 0 {
		return nil, &sandbox.Error{
			Kind: sandbox.KindDenied, Op: "admit", Subject: "require_layers",
			Err: &MissingLayersError{Engine: e.Name(), Missing: missing},
		}
	}
	return require, nil
}

// required gives the layers that configuration demands of an engine.
func (p *planner) required(engine string) []sandbox.Layer {
	if own, ok := p.cfg.RequireByEngine[engine]; ok {
		return slices.Clone(own)
	}
	return slices.Clone(p.cfg.Require)
}

func (p *planner) engine(name string) *Engine {
	for i := range p.engines {
		if p.engines[i].Name() == name {
			return &p.engines[i]
		}
	}
	return nil
}

func (p *planner) names() []string {
	names := []string{Auto}
	for _, e := range p.engines {
		names = append(names, e.Name())
	}
	return names
}

// EngineView is an engine as clients see it.
type EngineView struct {
	Support   isolation.Support
	Require   []sandbox.Layer       // by configuration
	Missing   []sandbox.LayerReport // of Require
	Allowed   bool                  // configuration lets it be used
	IsDefault bool                  // what a request that names none gets
	Mend      string                // when it is not allowed
}

// Engines describes every engine, in the order in which they were configured.
func (m *Manager) Engines() []EngineView {
	chosen, _, err := m.planner.choose("", nil)
	views := make([]EngineView, 0, len(m.planner.engines))
	for i := range m.planner.engines {
		e := &m.planner.engines[i]
		require := m.planner.required(e.Name())
		mend, refused := m.planner.cfg.Refused[e.Name()]
		views = append(views, EngineView{
			Support: e.Support, Require: require, Missing: e.Support.Missing(require),
			Allowed: !refused, Mend: mend, IsDefault: err == nil && chosen == e,
		})
	}
	return views
}

// Default is the engine of a request that names none, or why there is none.
func (m *Manager) Default() (*Engine, error) {
	e, _, err := m.planner.choose("", nil)
	return e, err
}
