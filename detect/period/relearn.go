package period

import "slices"

// countCalls compares an iteration's calls with the period.
func (t *Tracker) countCalls(calls int) {
	if calls < t.result.Period {
		t.short++
	}
	switch {
	case calls == t.result.Period:
		t.odd = 0
	case calls == t.expected && t.oncePerIteration():
		t.result.Period = calls
		t.expected = 0
		t.odd = 0
		t.result.Anchor.OrdinalStep = 0
	case t.odd == 0 || calls != t.oddCount:
		t.odd++
		t.oddCount = calls
		t.oddRun = 1
	default:
		t.odd++
		t.oddRun++
	}
}

// oncePerIteration reports whether the anchor's class comes once for any micro-batches.
func (t *Tracker) oncePerIteration() bool {
	return !t.result.ByTime && t.result.Anchor.PerPeriod == 1
}

// adoptCount takes the count of the last iterations as the period; false where
// that can't be trusted and the calls must be looked at again.
func (t *Tracker) adoptCount() bool {
	if !t.oncePerIteration() {
		return false
	}
	t.result.Period = t.oddCount
	t.odd = 0
	t.short = 0
	return true
}

// recentCalls is how many calls the odd iterations took.
func (t *Tracker) recentCalls() int {
	return min(len(t.calls), (t.odd+1)*max(t.result.Period, t.oddCount))
}

// relearnFrom goes back to learning with the newest calls.
func (t *Tracker) relearnFrom(keep int) {
	keep = min(keep, len(t.calls))
	n := copy(t.calls, t.calls[len(t.calls)-keep:])
	t.calls = t.calls[:n]
	t.known = false
	t.result = Result{}
	t.look = max(firstLook, n)
}

// doubtful reports whether a young job made a call of a new kind: what was taken for the
// iteration may be the micro-batch.
func (t *Tracker) doubtful(c Call) bool {
	if t.seen > youngCalls || t.result.ByTime {
		return false
	}
	class := t.inferredClass(c)
	return !t.familiar(class) && !t.isSibling(class)
}

func (t *Tracker) familiar(class Class) bool {
	_, known := t.classes[class]
	return known
}

// isUnknownKind reports whether since the last anchor calls came of a kind not seen when
// the period was learned: at first of all of them, then of the newest.
func (t *Tracker) isUnknownKind(c Call) bool {
	if t.since > strangerRuns*t.result.Period+strangerSlack+1 {
		return !t.familiar(t.inferredClass(c))
	}
	newest := t.calls[len(t.calls)-min(t.since, len(t.calls)):]
	return slices.ContainsFunc(newest, func(old Call) bool {
		return !t.familiar(t.inferredClass(old))
	})
}

// isSibling reports whether calls of another size but the same operation and
// communicator belong to every iteration: such a call alone does not make what
// was taken for the iteration a micro-batch.
func (t *Tracker) isSibling(c Class) bool {
	for known := range t.classes {
		if known.Op == c.Op && known.Comm == c.Comm {
			return true
		}
	}
	return false
}

// startRelearning goes back to learning with all calls kept, until so many have come
// that the new call would have come again.
func (t *Tracker) startRelearning() {
	t.known = false
	t.result = Result{}
	t.look = min(int(repeatsNeeded*float64(len(t.calls)))+1, t.cfg.Window)
}

// recheck looks again after twice as many calls, until the window is full:
// what repeated at first may have been the micro-batch of a first long
// iteration. An anchor that makes iterations too short comes in extra steps
// too, and gives way to another. What was taken for one iteration gives way to the
// steps that it is found to consist of. out is what ended with the newest call.
func (t *Tracker) recheck(out []Iteration) []Iteration {
	t.recheckAt = 2 * t.total
	if len(t.calls) >= t.cfg.Window-1 || t.recheckAt > t.cfg.Window {
		t.recheckAt = int(^uint(0) >> 1)
	}
	r, err := t.cfg.Infer(t.calls)
	if err != nil || r.ByTime || surePeriods*r.Period > len(t.calls) {
		return out
	}
	longer := r.Period > t.result.Period && r.Anchor.Class != t.result.Anchor.Class
	better := r.Period == t.result.Period &&
		t.short >= shortRuns &&
		!r.sameAnchor(t.result)
	shorter := r.Period < t.result.Period && r.steps
	if shorter {
		t.counted = Class{} // numbers so far were of several steps each: they don't go on
	}
	if !longer && !better && !shorter {
		return out
	}
	return t.applyResult(r)
}

func (r Result) sameAnchor(o Result) bool {
	return r.coarse == o.coarse &&
		r.Anchor.Class == o.Anchor.Class &&
		r.Anchor.PerPeriod == o.Anchor.PerPeriod &&
		slices.Equal(r.context, o.context)
}
