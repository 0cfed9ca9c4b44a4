// Package liveness is when each node was heard, and how well the engine itself hears.
//
// It guarantees: a node's silence is counted from when it was last heard, or from the
// end of the time that it has to be heard at all; a time in which the engine was not
// called, or could not hear, counts against no node. Time comes in as an argument.
// It knows of no rank and no recovery, and judges none.
package liveness
