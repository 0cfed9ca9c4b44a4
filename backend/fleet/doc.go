// Package fleet holds the engine's side of the agents' streams.
//
// It guarantees that a slow or stuck agent never delays the engine: what the
// engine sends goes into a bounded queue per stream, and a stream whose queue
// is full is ended; the agent comes back and gets its messages again. Frames count once:
// the Registry drops what an agent sends again after a reconnect.
//
// What an agent may send is bounded: a frame beyond the bounds of one is not
// decoded and counts as an empty one; an agent that sends faster than its
// budget, or more than the engine has taken, is read more slowly and loses
// nothing.
//
// Service owns one goroutine per stream and its Close waits for all of them.
// Registry owns none and belongs to the engine's goroutine. Neither must look
// into what frames mean: Hello, the sequence number and the size are all.
package fleet
