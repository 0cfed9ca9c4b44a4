// Package pressure knows how near the process is to its limit of memory.
//
// It guarantees that the level rises with what is live, not with what the
// garbage collector has yet to take, and that it falls again only when there is
// room: what is left out at a level does not flicker. It sets the runtime's own
// limit, so that the collector works harder before anything is left out.
//
// Gauge owns one goroutine; Close waits for it. It decides nothing: what is
// left out at a level is its users' to say.
package pressure
