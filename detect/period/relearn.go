package period

// count compares an iteration's calls with the period.
func (t *Tracker) count(calls int) {
	switch {
	case calls == t.result.Period:
		t.odd = 0
	case calls == t.expected && t.whole():
		t.result.Period, t.expected, t.odd = calls, 0, 0
		t.result.Anchor.OrdinalStep = 0
	case t.odd == 0:
		t.odd, t.oddCount = 1, calls
	default:
		t.odd++
		if calls != t.oddCount {
			t.oddCount = -1
		}
	}
}

// whole says that the anchor's class comes once an iteration, whatever the
// number of micro-batches.
func (t *Tracker) whole() bool { return !t.result.ByTime && t.result.Anchor.PerPeriod == 1 }

// adopt takes the count of the last iterations as the period; false where
// that can't be trusted and the calls must be looked at again.
func (t *Tracker) adopt() bool {
	if !t.whole() {
		return false
	}
	if t.oddCount > 0 {
		t.result.Period, t.odd = t.oddCount, 0
	}
	return true
}

// recentCalls is how many calls the odd iterations took.
func (t *Tracker) recentCalls() int {
	return min(len(t.calls), (t.odd+1)*max(t.result.Period, t.oddCount))
}

// forget goes back to learning with the newest calls.
func (t *Tracker) forget(keep int) {
	keep = min(keep, len(t.calls))
	n := copy(t.calls, t.calls[len(t.calls)-keep:])
	t.calls = t.calls[:n]
	t.known, t.result = false, Result{}
	t.look = max(firstLook, n)
}

// recheck looks again after twice as many calls, until the window is full:
// what repeated at first may have been the micro-batch of a first long
// iteration.
func (t *Tracker) recheck() []Iteration {
	t.recheckAt = 2 * t.total
	if len(t.calls) >= t.cfg.Window-1 || t.recheckAt > t.cfg.Window {
		t.recheckAt = int(^uint(0) >> 1)
	}
	r, err := t.cfg.Infer(t.calls)
	if err != nil || r.Period <= t.result.Period || surePeriods*r.Period > len(t.calls) {
		return nil
	}
	return t.take(r)
}
