// Package pool keeps what engines hand out: sandboxes that were made ahead of
// need (Pool), blocks of host ids (IDs), and which images they are ready for
// (Kinds).
//
// It owns what waits in it and nothing that it has handed out. It must never hand
// one sandbox, or one block of ids, to two runs, nor end a kind that somebody makes
// a sandbox of. It decides when to make and to discard; how is the engine's
// business.
//
// Proven by TestPool_HandsOutOnce, TestIDs_NeverShared and
// TestKinds_AreSharedAndEvictedWhenUnused.
package pool
