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
func (p *planner) choose(name string, wanted []sandbox.Layer, image *held) (*Engine, []sandbox.Layer, error) {
	for i, l := range wanted {
		if !sandbox.KnownLayer(l) {
			return nil, nil, sandbox.Errorf(sandbox.KindInvalid, "admit", fmt.Sprintf("require_layers[%d]", i), "no layer is called %.64q", string(l))
		}
	}
	if name == "" {
		name = p.cfg.DefaultEngine
	}
	if name == "" || name == Auto {
		return p.strongest(wanted, image)
	}
	e := p.engine(name)
	mend, refused := p.refused(name)
	switch {
	case e == nil:
		return nil, nil, sandbox.Errorf(sandbox.KindInvalid, "admit", "engine", "no engine is called %.64q; known: %s", name, strings.Join(p.names(), ", "))
	case refused:
		err := sandbox.Errorf(sandbox.KindDenied, "admit", "engine", "the configuration does not allow engine %s", name)
		err.Mend = mend
		return nil, nil, err
	}
	require, err := p.fit(e, wanted, image)
	return e, require, err
}

// refused tells whether configuration keeps an engine from use, and the mend.
func (p *planner) refused(name string) (mend string, refused bool) {
	if p.cfg.Allowed != nil && !slices.Contains(p.cfg.Allowed, name) {
		return "add it to allowed in the section engines of the configuration", true
	}
	mend, refused = p.cfg.Refused[name]
	return mend, refused
}

// strongest takes the first engine of the configured order that holds what is
// required. When none does, the first one's shortcoming is the answer.
func (p *planner) strongest(wanted []sandbox.Layer, image *held) (*Engine, []sandbox.Layer, error) {
	var first error
	for _, name := range p.cfg.EngineOrder {
		e := p.engine(name)
		if _, refused := p.refused(name); e == nil || refused {
			continue
		}
		require, err := p.fit(e, wanted, image)
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
func (p *planner) fit(e *Engine, wanted []sandbox.Layer, image *held) ([]sandbox.Layer, error) {
	if !e.Support.Usable {
		return nil, sandbox.Errorf(sandbox.KindUnavailable, "admit", "engine", "engine %s is not usable: %s", e.Name(), e.Support.Reason)
	}
	if err := image.suits(e); err != nil {
		return nil, err
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
	for _, e := range p.engines.all() {
		if e.Name() == name {
			return e
		}
	}
	return nil
}

func (p *planner) names() []string {
	names := []string{Auto}
	for _, e := range p.engines.all() {
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
	chosen, err := m.Default()
	engines := m.planner.engines.all()
	views := make([]EngineView, 0, len(engines))
	for _, e := range engines {
		require := m.planner.required(e.Name())
		mend, refused := m.planner.refused(e.Name())
		views = append(views, EngineView{
			Support: e.Support, Require: require, Missing: e.Support.Missing(require),
			Allowed: !refused, Mend: mend, IsDefault: err == nil && chosen == e,
		})
	}
	return views
}

// Default is the engine of a request that names neither engine nor image, or why
// it would be refused.
func (m *Manager) Default() (*Engine, error) {
	image, err := m.planner.hold("")
	if err != nil {
		return nil, err
	}
	defer image.release()
	e, _, err := m.planner.choose("", nil, &image)
	return e, err
}
