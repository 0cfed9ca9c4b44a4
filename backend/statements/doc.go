// Package statements decides what is said first of a job: it turns a picture of the whole state
// into an ordered list of typed statements, each with its severity, whom it is about, who must
// act, and until when.
//
// It guarantees one order for all who show it: standstill and recovery, then the most dangerous
// pending action of any incident, then what waits for a person, then open incidents, then what is
// in force, then the last that ended. It never calls a job running of which no iteration was
// reported for three usual times and Sampling, and never finished where Falcon ended it.
//
// It takes time as an argument, starts no goroutine and does no I/O. It must not judge what the
// engine judges: what is slow, lost or held up is in the picture. Sentences are made of
// statements by who shows them.
package statements
