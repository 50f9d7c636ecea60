// Package daemon puts the parts of sandboxd together and stops them in order:
// no new connections, then no new runs, then the engines.
//
// It must never name a concrete engine, and it leaves the host's facts (peer
// credentials, the socket itself) to its caller. TestServe_* prove the order.
package daemon
