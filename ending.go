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
	Status int    // with which it exited
	Signal int    // that ended it, 0 = it exited
	Raised Raised // the error that its adapter reported
	Said   string // the telling line of the last that it printed; empty = nothing could be read
}

// Raised is the error that a program ends with, as its adapter reports it (falcon_job_raised); the
// zero value is none.
type Raised struct {
	Kind    string // type, as "ValueError"
	Where   string // file and line that raised it, as "train.py:41"
	Text    string // message, cut
	OfPeers bool   // communication has failed: a peer's end alone may explain it
}

// IsZero reports whether none was reported.
func (r Raised) IsZero() bool { return r == Raised{} }

// SameError reports whether two programs failed by one error of their own: of a type, at a line.
// Messages may name ranks.
func (r Raised) SameError(o Raised) bool {
	return !r.IsZero() && !r.OfPeers && !o.OfPeers && r.Kind == o.Kind && r.Where == o.Where
}

func (r Raised) String() string {
	out := r.Kind
	if r.Where != "" {
		out += " at " + r.Where
	}
	if r.Text != "" {
		out += ": " + r.Text
	}
	return out
}

// Words are why the process ended, as it says itself; empty where nothing of it is known.
func (e Ending) Words() string {
	if !e.Raised.IsZero() {
		return e.Raised.String()
	}
	return e.Said
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
	EndsAlike   EndsTogether = "alike"   // all raised the same error, which is not of communication: the program is at fault
)
