// Package rollback is the undo stack of a setup with several steps.
//
// It owns the order: what was done last is undone first. It must never drop an
// undo's error, nor run an undo twice. Proven by TestStack_UndoesInReverse.
package rollback
