// Package docker is the engine that has a Docker Engine make its sandboxes: for
// hosts where one already runs, or another machine that has one.
//
// A sandbox is one container, used once. What it is comes from isolation.Spec,
// mapped to what the Engine's API takes (options.go); its first process is the
// guest's supervisor, which speaks with the daemon over an attachment made before
// it starts. Nothing is ever executed in a container later, nothing is copied
// into or out of one, and no option comes from a client. Supervisors are booted
// ahead of need (isolation/pool).
//
// The Engine's word is asked for what it alone knows. Where its containers are
// processes of this machine, what is on the path of a run is asked of the kernel
// (local.go): that all is dead, the account of time, and kills for want of memory.
//
// The engine owns the containers that carry its label (Config.Owner), and no
// others, and the images that it has imported. It must never take an image by
// name: names move. An Engine that is lost in the middle of runs ends these as
// unavailable, and what they leave is removed when it is back (reap.go).
//
// Lock order: Engine.probing, Engine.imports, Engine.mu. Proven by the conformance suite in
// isolation/enginetest, TestEngine_LeavesNothing and TestEngine_SurvivesItsEngine.
package docker
