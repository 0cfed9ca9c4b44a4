package falcon

import (
	"regexp"
	"slices"
	"strings"
)

// Signals and exit statuses of a process that somebody has ended in order.
const (
	sigInt, sigTerm             = 2, 15
	statusOfSignal              = 128 // and the signal's number: of who handles it and exits
	statusOfInt, statusOfTermed = statusOfSignal + sigInt, statusOfSignal + sigTerm
)

// raisedOfInt is what Python raises for SIGINT. It tells where no kernel does how the process ended.
const raisedOfInt = "KeyboardInterrupt"

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
	return !r.IsZero() &&
		!r.OfPeers &&
		!o.OfPeers &&
		r.Kind == o.Kind &&
		r.Where == o.Where
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

// ownError is the line that ends a traceback of Python, and numbers in it, which differ between ranks.
var (
	ownError = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*(Error|Exception)\b`)
	numbers  = regexp.MustCompile(`[0-9]+`)
)

// notOwn are words of errors that a peer's end, a network or a device may explain.
var notOwn = []string{
	"cuda", "nccl", "gloo", "ecc", "xid", "connection", "socket", "timeout", "timed out",
	"broken pipe", "memory",
}

// SameError reports whether two programs failed by one error of their own: as their adapters report
// it, or, without, by the same last line of a traceback but for the numbers in it.
func (e Ending) SameError(o Ending) bool {
	if !e.Raised.IsZero() || !o.Raised.IsZero() {
		return e.Raised.SameError(o.Raised)
	}
	if !ownError.MatchString(e.Said) || namesOther(e.Said) {
		return false
	}
	return numbers.ReplaceAllString(e.Said, "") == numbers.ReplaceAllString(o.Said, "")
}

// OwnError reports whether the program ended by an error of its own, which neither a peer's end nor a
// device nor a network explains.
func (e Ending) OwnError() bool {
	if !e.Raised.IsZero() {
		return !e.Raised.OfPeers &&
			!e.Ordered() &&
			!namesOther(e.Raised.Kind+" "+e.Raised.Text)
	}
	return ownError.MatchString(e.Said) && !namesOther(e.Said)
}

// namesOther reports whether an error names what a peer's end, a network or a device may explain.
func namesOther(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(notOwn, func(word string) bool {
		return strings.Contains(text, word)
	})
}

// Ordered reports whether SIGTERM or SIGINT has ended the process, as scancel, a time limit and
// Ctrl-C send them.
func (e Ending) Ordered() bool {
	switch {
	case e.Raised.Kind == raisedOfInt:
		return true
	case !e.Known:
		return false
	case e.Signal != 0:
		return e.Signal == sigInt || e.Signal == sigTerm
	}
	return e.Status == statusOfInt || e.Status == statusOfTermed
}

// Interrupted reports whether SIGINT has ended the process.
func (e Ending) Interrupted() bool {
	return e.Ordered() &&
		(e.Raised.Kind == raisedOfInt || e.Signal == sigInt || e.Signal == 0 && e.Status == statusOfInt)
}

// EndsTogether is what the ends of all of a job's ranks within moments of each other mean, or of some
// before it has begun.
type EndsTogether string

// Meanings; nothing of it is a loss of nodes.
const (
	EndsStopped EndsTogether = "stopped" // SIGTERM or SIGINT ended all of them: somebody has stopped the job
	// the same, or how is not reported: none of them parked, as those do whose peer has died
	EndsAtOnce EndsTogether = "at once"
	// all failed before the first iteration: the program, or its start, is at fault
	EndsUnbegun EndsTogether = "unbegun"
	// some failed before the first iteration by an error of the program: it would fail again
	EndsErred EndsTogether = "erred"
	// all ended with the same error, which is not of communication: the program is at fault
	EndsAlike EndsTogether = "alike"
	// Of ranks that SIGINT has ended, as nothing but a person and a launcher send it. Others that
	// wait for them in a call can't take it, and live.
	EndsInterrupted EndsTogether = "interrupted"
)
