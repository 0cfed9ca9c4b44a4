package falcon

// Signals and exit statuses of a process that somebody has ended in order.
const (
	sigInt, sigTerm             = 2, 15
	statusOfSignal              = 128 // and the signal's number: of who handles it and exits
	statusOfInt, statusOfTermed = statusOfSignal + sigInt, statusOfSignal + sigTerm
)

// Ending is how a process ended, as its kernel told; the zero value is unknown.
type Ending struct {
	Known  bool
	Status int // with which it exited
	Signal int // that ended it, 0 = it exited
}

// Ordered reports whether SIGTERM or SIGINT has ended the process, as scancel, a time limit and
// Ctrl-C send them.
func (e Ending) Ordered() bool {
	switch {
	case !e.Known:
		return false
	case e.Signal != 0:
		return e.Signal == sigInt || e.Signal == sigTerm
	}
	return e.Status == statusOfInt || e.Status == statusOfTermed
}

// EndsTogether is what the ends of all of a job's ranks within moments of each other mean.
type EndsTogether string

// Meanings; nothing of it is a loss of nodes.
const (
	EndsStopped EndsTogether = "stopped" // SIGTERM or SIGINT ended all of them: somebody has stopped the job
	EndsAtOnce  EndsTogether = "at once" // the same, or how is not told: none of them parked, as those do whose peer has died
	EndsUnbegun EndsTogether = "unbegun" // all failed before the first iteration: the program, or its start, is at fault
)
