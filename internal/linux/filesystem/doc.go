// Package filesystem asks the kernel what the standard library does not: that a
// whole file system be written out (syncfs(2)), and whether an error says that
// it is full.
//
// It must never change a file. Proven by TestSync_WritesOut and TestFull.
package filesystem
