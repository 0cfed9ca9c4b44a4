package history

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// Part is a piece of a ledger; one field is set.
type Part struct {
	Entry  *Entry      `json:"entry,omitempty"`
	Job    *Job        `json:"job,omitempty"`
	Newest uint64      `json:"newest,omitempty"`
	Cause  *CausePart  `json:"cause,omitempty"`
	Named  *NamedPart  `json:"named,omitempty"`
	Folded *FoldedPart `json:"folded,omitempty"`
}

// CausePart is what the folded incidents of a cause have come to.
type CausePart struct {
	Cause falcon.Cause `json:"cause"`
	Count
}

// NamedPart is a culprit of folded incidents.
type NamedPart struct {
	Name
	Tally
}

// FoldedPart is what folded jobs have come to.
type FoldedPart struct {
	Column
	JobCount
}

// ErrPart is returned for a part of which nothing is set.
var ErrPart = errors.New("history: an empty part")

// Parts hands out the ledger in pieces, in an order that Take accepts.
func (l *Ledger) Parts(put func(Part)) {
	if l.newest > 0 {
		put(Part{Newest: l.newest})
	}
	for i := range l.jobs {
		put(Part{Job: &l.jobs[i]})
	}
	for _, c := range slices.Sorted(maps.Keys(l.causes)) {
		put(Part{Cause: &CausePart{c, l.causes[c]}})
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.named), compareNames) {
		put(Part{Named: &NamedPart{k, l.named[k]}})
	}
	columns := func(a, b Column) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Category, b.Category))
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.folded), columns) {
		put(Part{Folded: &FoldedPart{k, l.folded[k]}})
	}
	for i := range l.past {
		put(Part{Entry: &l.past[i]})
	}
}

// Take puts one piece in its place.
func (l *Ledger) Take(p Part) error {
	switch {
	case p.Entry != nil:
		l.past = append(l.past, *p.Entry)
	case p.Job != nil:
		l.jobs = append(l.jobs, *p.Job)
	case p.Cause != nil:
		l.causes = with(l.causes, p.Cause.Cause, p.Cause.Count)
	case p.Named != nil:
		l.named = with(l.named, p.Named.Name, p.Named.Tally)
	case p.Folded != nil:
		l.folded = with(l.folded, p.Folded.Column, p.Folded.JobCount)
	case p.Newest > 0:
		l.newest = p.Newest
	default:
		return ErrPart
	}
	return nil
}
