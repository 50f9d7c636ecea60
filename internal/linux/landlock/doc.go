// Package landlock describes Landlock rulesets as data and asks the kernel which
// version of Landlock it speaks.
//
// It owns the access bits and which ABI knows which of them. The guest, which is
// Python, makes the three system calls itself from a [Ruleset]; [Restrict] does
// the same for a Go process.
//
// It must never hand out a bit that the probed ABI does not know, since the
// kernel refuses the whole ruleset for one unknown bit (landlock(7)); and never
// treat a missing Landlock as restriction: [ABI] then says 0.
//
// Proven by TestFor_MasksByABI and, with the kernel's own answers, by
// TestRestrict_KernelHoldsRuleset.
package landlock
