// Package rpc serves the engine to agents and consoles.
//
// It guarantees that every call is made by a proven caller whose role the
// method's row in the table covers, checked from the call's headers before its
// message is read; that a method without a row is refused; that agents and
// remote consoles are heard over TLS 1.3 with certificates on both sides only,
// and local consoles over a socket that only its owner can open. There is no
// plaintext TCP.
//
// It guarantees besides that no caller takes the engine from the others: a
// request has 64 KiB at most and only an agent's stream more; calls, streams and
// connections of one identity are counted over all its connections; a stream
// ends with its certificate; a call that panics ends alone. The owner's socket
// is bounded in the size of requests alone, and is answered also when the engine
// is short of memory.
//
// Server owns the listeners and all their goroutines; Close waits for them. It
// must not hold state of the job: that is the engine's.
package rpc
