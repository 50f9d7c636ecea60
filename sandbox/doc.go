// Package sandbox is the vocabulary of sandboxd: what a caller asks for (Spec),
// what may be consumed (Limits), what was measured (Usage), what the kernel and
// the engine saw (Outcome), what the guest claimed (Report), and what is
// answered (Result).
//
// It imports the standard library only and does no input or output. The structs
// are the wire format, the stored form and what engines read; there is one
// definition per fact. Verdicts come from VerdictOf and from nowhere else.
package sandbox
