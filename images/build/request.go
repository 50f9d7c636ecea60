package build

import (
	"regexp"
	"strings"

	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/sandbox"
)

// Request is what a client may say of a build.
type Request struct {
	// Base is an image of the Engine; the default of Dockerfile.python where empty.
	Base string
	// Requirements are packages for pip: a name, extras and versions, such as
	// "numpy", "numpy==1.26.4" or "x[extra]>=1,<2". They need the network.
	Requirements []string
	// Network lets the build use the Engine's network, and the Engine fetch a base
	// that it does not have. Without it there is none.
	Network bool
}

// requirement is the part of PEP 508 that names a package of the index that the
// Engine's network leads to. Addresses, files, markers and options of pip are left
// out: what comes of an option is as much as what comes of a Dockerfile.
var requirement = regexp.MustCompile(`^` + packageName + `(\[` + packageName + `(,` + packageName + `)*\])?` +
	`(` + versionBound + `(,` + versionBound + `)*)?$`)

const (
	packageName  = `[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?`
	versionBound = `(==|!=|~=|<=|>=|<|>)[0-9][A-Za-z0-9.!+_*-]*`

	maxRequirements     = 100
	maxRequirementBytes = 200
)

// Validate tells what is wrong with a request.
func (r Request) Validate() error {
	const op = "build image"
	if r.Base != "" {
		if err := source.CheckReference("base", r.Base); err != nil {
			return err
		}
	}
	if len(r.Requirements) > maxRequirements {
		return sandbox.Errorf(sandbox.KindInvalid, op, "requirements", "%d packages; %d are allowed", len(r.Requirements), maxRequirements)
	}
	for _, one := range r.Requirements {
		if len(one) > maxRequirementBytes || !requirement.MatchString(one) {
			return &sandbox.Error{
				Kind: sandbox.KindInvalid, Op: op, Subject: "requirements", Err: sandbox.Errorf("", "", "", "%.100q is no package", one).Err,
				Mend: `name it as "numpy", "numpy==1.26.4" or "x[extra]>=1,<2"`,
			}
		}
	}
	if len(r.Requirements) > 0 && !r.Network {
		return &sandbox.Error{
			Kind: sandbox.KindInvalid, Op: op, Subject: "requirements", Err: sandbox.Errorf("", "", "", "packages are fetched over a network").Err,
			Mend: "allow the build the network, or put the packages into the base: make base PACKAGES=python3-NAME",
		}
	}
	return nil
}

// arguments are the build's, by name.
func (r Request) arguments(base string) map[string]*string {
	list := strings.Join(r.Requirements, " ")
	return map[string]*string{"BASE": &base, "REQUIREMENTS": &list}
}
