// Package standstill finds who holds up a running job that stands still: no rank has
// made a call for some beats. It has the agents asked for the newest calls of all
// processes, works out which of them can't have ended, and has detect/trace/hang, which
// judges dumps of PyTorch's flight recorder as well, look who waits for whom.
//
// It guarantees: nothing is asked for while calls are made or the job is held; a
// standstill is asked about again ever more seldom; the verdict is taken back with the
// first call after it. A rank is named only by what its own process and those that wait
// for it have recorded. Where an agent has not answered, a record has gaps, or most
// ranks would be to blame, they are candidates and the doubt is given. It is evidence for
// people: nothing is to be fenced or ended on it.
//
// The machine takes time as an argument, starts no goroutine and does no I/O.
package standstill
