// Package filesystem asks the kernel what the standard library does not: that a
// whole file system be written out (syncfs(2)), and which of its bounds an error
// tells of.
//
// It must never change a file. Proven by TestSync_WritesOut and TestBounds.
package filesystem
