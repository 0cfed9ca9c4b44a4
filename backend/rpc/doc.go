// Package rpc serves the engine to agents and consoles.
//
// It guarantees that every call is made by a proven caller whose role the
// method's row in the table covers; that a method without a row is refused;
// that agents and remote consoles are heard over TLS 1.3 with certificates on
// both sides only, and local consoles over a socket that only its owner can
// open. There is no plaintext TCP.
//
// Server owns the listeners and all their goroutines; Close waits for them. It
// must not hold state of the job: that is the engine's.
package rpc
