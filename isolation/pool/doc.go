// Package pool keeps what engines hand out: sandboxes that were made ahead of
// need (Pool) and blocks of host ids (IDs).
//
// It owns what waits in it and nothing that it has handed out. It must never hand
// one sandbox, or one block of ids, to two runs. It decides when to make and to
// discard; how is the engine's business.
//
// Proven by TestPool_HandsOutOnce and TestIDs_NeverShared.
package pool
