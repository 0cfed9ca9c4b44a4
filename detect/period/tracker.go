package period

// Bounds of a Tracker.
const (
	defaultWindow = 32768 // calls remembered: periods up to window/2.5 are found
	firstLook     = 64    // calls before the first attempt
	surePeriods   = 4     // periods seen before iterations are reported
	strangerSlack = 64    // calls beyond so many periods without an anchor: lost it
	strangerRuns  = 2     // periods, with calls of kinds not seen before
	extraRuns     = 20    // periods, with calls of known kinds alone: a long evaluation
	changedRuns   = 3     // equal new counts of calls that change the period
	shortRuns     = 2     // iterations of too few calls that cast doubt on the anchor
	erraticRuns   = 8     // unequal counts that make it learn again
	youngCalls    = 1024  // calls of a job in which a class never seen casts doubt
)

// Tracker follows a live sequence: it learns the period, then reports each
// iteration as its closing anchor call comes in. A change of the number of
// calls between anchors (other micro-batch counts) does not disturb the
// iterations; the period follows after changedRuns of them, or at once when
// Expect announced it. When the anchor stays away for strangerRuns periods, or
// the count stays erratic, the period is learned again from recent calls; but
// calls of known kinds alone may be a long evaluation, so that extraRuns
// periods of them are waited for.
//
// Memory is bounded by Config.Window calls. Attempts at learning are spaced
// geometrically, so that the work per call is bounded on average.
type Tracker struct {
	cfg   Config
	calls []Call // newest Window at most
	look  int    // len(calls) at which to try again

	known    bool
	result   Result
	expected int

	last      Iteration // its Start fields: where the running iteration began
	fresh     bool
	since     int // calls since the last anchor
	hits      int // calls of the anchor's class since the last anchor
	odd       int // iterations in a row whose count was not the period
	oddCount  int // calls of the newest of them
	oddRun    int // how many of them in a row had as many
	short     int // iterations of fewer calls than the period, since it was learned or changed
	recheckAt int // calls since learning at which the period is checked again
	total     int // calls since learning

	behind [contextMax]Class // the calls before the next one, newest first
	next   uint64            // ordinal that the anchor's communicator shows next, where it counts
	gap    bool              // ordinals were left out since the last anchor: records were lost

	classes  map[Class]struct{} // seen when the period was learned
	seen     int                // calls in all
	any      bool               // an iteration was reported; of the newest such:
	reported int64              // EndNs
	newest   int64              // Number
	counted  Class              // the anchor's
}

// NewTracker returns a tracker that has seen nothing.
func NewTracker(cfg Config) *Tracker {
	return &Tracker{cfg: cfg.withDefaults(), look: firstLook}
}

// Period is the number of calls in an iteration, 0 while unknown.
func (t *Tracker) Period() int { return t.result.Period }

// Anchor is the call that iterations are counted on, once known.
func (t *Tracker) Anchor() (Anchor, bool) {
	return t.result.Anchor, t.known
}

// Expect announces that iterations will have this many calls from soon on (an
// order changes the micro-batches): the first such iteration is believed.
func (t *Tracker) Expect(period int) {
	t.expected = period
}

// Reset forgets everything: another job, or other communicators.
func (t *Tracker) Reset() {
	*t = *NewTracker(t.cfg)
}

// Observe takes in the next call and returns the iterations that it closed:
// usually none or one, several when the period has just been learned and the
// remembered calls hold whole iterations.
func (t *Tracker) Observe(c Call) []Iteration {
	t.remember(c)
	t.seen++
	if !t.known {
		return t.dropReported(t.tryLearning())
	}
	t.total++
	out := t.followAnchor(c)
	switch {
	case t.doubtful(c):
		t.startRelearning()
	case t.since > strangerRuns*t.result.Period+strangerSlack && t.isUnknownKind(c):
		t.relearnFrom(t.since)
	case t.since > extraRuns*t.result.Period+strangerSlack:
		t.relearnFrom(len(t.calls))
	case t.odd > 0 && t.oddRun >= changedRuns && t.adoptCount():
	case t.odd >= erraticRuns, t.odd >= changedRuns && !t.oncePerIteration():
		t.relearnFrom(t.recentCalls())
	case t.total >= t.recheckAt:
		out = t.recheck(out)
	}
	return t.dropReported(out)
}

// dropReported leaves out iterations that reach back into what was reported before
// the period was learned again. On the same anchor numbers go on; another one's
// ordinals have another origin.
func (t *Tracker) dropReported(its []Iteration) []Iteration {
	out := its[:0]
	shift := int64(0)
	for _, it := range its {
		if t.any && it.StartNs < t.reported {
			continue
		}
		if t.fresh && t.any && t.counted == t.result.Anchor.Class {
			shift = t.newest + 1 + missedBetween(it, t.reported) - it.Number
		}
		it.Number += shift
		it.Fresh = t.fresh
		t.fresh = false
		t.any = true
		t.reported = it.EndNs
		t.newest = it.Number
		t.counted = t.result.Anchor.Class
		out = append(out, it)
	}
	t.last.Number += shift
	return out
}

// missedBetween is how many such iterations fit between the last reported and it.
func missedBetween(it Iteration, reported int64) int64 {
	took := max(it.EndNs-it.StartNs, 1)
	return (it.StartNs - reported + took/2) / took
}

// remember keeps the call; when the window is full its older half goes.
func (t *Tracker) remember(c Call) {
	if len(t.calls) >= t.cfg.Window {
		n := copy(t.calls, t.calls[len(t.calls)/2:])
		t.calls = t.calls[:n]
		t.look = min(t.look, t.cfg.Window)
	}
	t.calls = append(t.calls, c)
}

// tryLearning learns when enough calls have come, and reports the iterations held.
func (t *Tracker) tryLearning() []Iteration {
	if len(t.calls) < t.look {
		return nil
	}
	r, err := t.cfg.Infer(t.calls)
	if err != nil || surePeriods*r.Period > len(t.calls) {
		t.look = len(t.calls) + len(t.calls)/2
		if err == nil {
			t.look = min(t.look, surePeriods*r.Period)
		}
		t.look = min(t.look, t.cfg.Window)
		return nil
	}
	return t.applyResult(r)
}

// applyResult puts a result in force and replays the calls since its first anchor.
func (t *Tracker) applyResult(r Result) []Iteration {
	t.known, t.result = true, r
	t.fresh = true
	t.odd = 0
	t.total = 0
	t.recheckAt = len(t.calls)
	t.since = 0
	t.hits = 0
	t.short = 0
	t.classes = make(map[Class]struct{})
	for _, c := range t.calls {
		t.classes[t.inferredClass(c)] = struct{}{}
	}
	if len(r.Starts) == 0 {
		return nil
	}
	var out []Iteration
	t.next = 0
	first := r.Starts[0]
	for _, c := range t.calls[max(first-contextMax, 0):first] {
		t.trackCall(c, t.inferredClass(c))
	}
	t.beginIteration(t.calls[first], t.firstNumber(t.calls[first]))
	t.trackCall(t.calls[first], t.inferredClass(t.calls[first]))
	for _, c := range t.calls[first+1:] {
		out = append(out, t.followAnchor(c)...)
	}
	t.odd = 0
	return out
}

// firstNumber aligns ranks: members of a communicator see the same ordinals.
func (t *Tracker) firstNumber(c Call) int64 {
	if step := t.result.Anchor.OrdinalStep; step > 0 {
		return int64(c.Ordinal / step)
	}
	return 0
}

func (t *Tracker) beginIteration(c Call, number int64) {
	t.last = Iteration{
		Number:  number,
		StartNs: c.TimeNs,
		Ordinal: c.Ordinal,
	}
	t.since = 0
	t.hits = 0
	t.gap = false
}

// followAnchor closes the running iteration when the call is its anchor.
func (t *Tracker) followAnchor(c Call) []Iteration {
	t.since++
	class := t.inferredClass(c)
	closes := t.closesIteration(class)
	t.trackCall(c, class)
	if !closes {
		return nil
	}
	it := t.last
	it.EndNs, it.Calls = c.TimeNs, t.since
	lost := t.gap
	step := t.iterationsSince(c)
	t.countCalls(it.Calls)
	t.beginIteration(c, it.Number+step)
	if lost {
		return nil // records were lost in between: this is no iteration's time
	}
	return []Iteration{it}
}

// trackCall puts the call behind, and detects lost records of its communicator.
func (t *Tracker) trackCall(c Call, class Class) {
	if n := len(t.result.context); n > 0 {
		for i := n - 1; i > 0; i-- {
			t.behind[i] = t.behind[i-1]
		}
		t.behind[0] = class
	}
	if c.Comm != t.result.Anchor.Class.Comm {
		return
	}
	if t.next > 0 && c.Ordinal > t.next {
		t.gap = true
	}
	t.next = c.Ordinal + 1
}

// inferredClass is the call's class as the period's inference saw it.
func (t *Tracker) inferredClass(c Call) Class {
	if t.result.coarse == 0 {
		return c.classOf()
	}
	return coarsenings[t.result.coarse](c.classOf())
}

func (t *Tracker) closesIteration(class Class) bool {
	if t.result.ByTime {
		return t.since >= t.result.Period
	}
	if class == t.result.Anchor.Class && t.inContext() {
		t.hits++
	}
	return t.hits >= t.result.Anchor.PerPeriod
}

func (t *Tracker) inContext() bool {
	for i, c := range t.result.context {
		if t.behind[i] != c {
			return false
		}
	}
	return true
}

// iterationsSince is how many iterations lie between the last anchor and this one: one,
// but where records were lost. An extra step's calls on the communicator are
// no lost records.
func (t *Tracker) iterationsSince(c Call) int64 {
	step := t.result.Anchor.OrdinalStep
	if step == 0 || !t.gap || c.Ordinal <= t.last.Ordinal {
		return 1
	}
	return max(1, int64((c.Ordinal-t.last.Ordinal+step/2)/step))
}
