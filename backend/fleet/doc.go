// Package fleet holds the engine's side of the agents' streams.
//
// It guarantees that a slow or stuck agent never delays the engine: what the
// engine sends goes into a bounded queue per stream, and a stream whose queue
// is full is ended; the agent comes back and is told again. Frames count once:
// the Registry drops what an agent sends again after a reconnect.
//
// Service owns one goroutine per stream and its Close waits for all of them.
// Registry owns none and belongs to the engine's goroutine. Neither must look
// into frames beyond Hello and the sequence number.
package fleet
