package runs

import (
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/sandbox"
)

// plan is a spec after defaults, ceilings and choices.
type plan struct {
	mode       sandbox.Mode
	spec       *sandbox.Spec
	engine     *Engine
	image      held
	require    []sandbox.Layer
	limits     sandbox.Limits
	unenforced []string // default limits that the engine cannot enforce
}

// mentions tells whether the program's text speaks of a module.
func (p *plan) mentions(module string) bool {
	for _, text := range []*string{p.spec.Solution, p.spec.Tests, p.spec.Program} {
		if text != nil && strings.Contains(*text, module) {
			return true
		}
	}
	return false
}

// planner turns specs into plans. It starts nothing and changes nothing.
type planner struct {
	cfg     Config
	engines *engineList
}

// plan checks everything that can be checked before anything exists. The plan
// holds its image: whoever is done with it releases that.
func (p *planner) plan(spec *sandbox.Spec) (*plan, error) {
	mode, err := spec.Mode()
	if err != nil {
		return nil, err
	}
	if err := checkIntegrity(spec.Integrity); err != nil {
		return nil, err
	}
	limits, named, err := spec.Limits.Plan(p.cfg.Defaults, p.cfg.Ceilings)
	if err != nil {
		return nil, err
	}
	checked, err := checkInput(spec, mode, limits)
	if err != nil {
		return nil, err
	}
	image, err := p.hold(spec.Image)
	if err != nil {
		return nil, err
	}
	made := &plan{mode: mode, spec: checked, image: image, limits: limits}
	if err := p.place(made, named); err != nil {
		image.release()
		return nil, err
	}
	return made, nil
}

func (p *planner) hold(reference string) (held, error) {
	from := p.cfg.Images
	if from == nil {
		from = ownImage{}
	}
	image, release, err := from.Hold(reference)
	return held{image, release}, err
}

// place chooses the engine.
func (p *planner) place(made *plan, named []string) (err error) {
	made.engine, made.require, err = p.choose(made.spec.Engine, made.spec.RequireLayers, &made.image)
	if err != nil {
		return err
	}
	made.unenforced, err = enforceable(made.engine, made.limits, named)
	return err
}

func checkIntegrity(i sandbox.Integrity) error {
	switch i {
	case "", sandbox.IntegrityShared:
		return nil
	case sandbox.IntegritySplit:
		e := sandbox.Errorf(sandbox.KindInvalid, "admit", "integrity", "this version has no judge process, and never answers with less integrity than asked")
		e.Mend = "ask for shared"
		return e
	}
	return sandbox.Errorf(sandbox.KindInvalid, "admit", "integrity", "unknown mode %q", i)
}

// enforceable refuses a limit that the request named and the engine cannot
// enforce, and lists the defaults that it cannot.
func enforceable(e *Engine, limits sandbox.Limits, named []string) ([]string, error) {
	unenforced := []string{}
	for _, f := range limits.Fields() {
		if e.can(f.Name) {
			continue
		}
		if slices.Contains(named, f.Name) {
			return nil, sandbox.Errorf(sandbox.KindInvalid, "admit", "limits."+f.Name, "engine %s cannot enforce it on this host", e.Name())
		}
		if off := f.Name == "output_stop_bytes" && *f.Value == 0; !off {
			unenforced = append(unenforced, f.Name)
		}
	}
	return unenforced, nil
}
