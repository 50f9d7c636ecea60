// Package archtest holds the rules on who may import whom, on unsafe code and
// on package names as tests. It exports nothing.
//
// depguard states the same table for editors; this one also covers test files
// and every build constraint, and a tree that nobody listed fails.
package archtest
