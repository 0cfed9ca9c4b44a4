package period

// Bounds of a Tracker.
const (
	defaultWindow = 32768 // calls remembered: periods up to window/2.5 are found
	firstLook     = 64    // calls before the first attempt
	surePeriods   = 4     // periods seen before iterations are reported
	strangerSlack = 64    // calls beyond two periods without an anchor: lost it
	changedRuns   = 3     // equal new counts of calls that change the period
	erraticRuns   = 8     // unequal counts that make it learn anew
	youngCalls    = 1024  // calls of a job in which a class never seen casts doubt
)

// Tracker follows a live sequence: it learns the period, then reports each
// iteration as its closing anchor call comes in. A change of the number of
// calls between anchors (other micro-batch counts) does not disturb the
// iterations; the period follows after changedRuns of them, or at once when
// Expect announced it. When the anchor stays away for two periods, or the
// count stays erratic, the period is learned anew from recent calls.
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
	started   bool
	fresh     bool
	since     int // calls since the last anchor
	hits      int // calls of the anchor's class since the last anchor
	odd       int // iterations in a row whose count was not the period
	oddCount  int // their count, -1 when they differ
	recheckAt int // calls since learning at which the period is checked again
	total     int // calls since learning

	behind [contextMax]Class // the calls before the next one, newest first
	next   uint64            // ordinal that the anchor's communicator shows next, where it counts
	gap    bool              // ordinals were left out since the last anchor: records were lost

	classes  map[Class]struct{} // seen when the period was learned
	seen     int                // calls in all
	reported int64              // EndNs of the newest iteration reported
	any      bool               // an iteration was reported
}

// NewTracker returns a tracker that has seen nothing.
func NewTracker(cfg Config) *Tracker {
	return &Tracker{cfg: cfg.withDefaults(), look: firstLook}
}

// Period is the number of calls in an iteration, 0 while unknown.
func (t *Tracker) Period() int { return t.result.Period }

// Anchor is the call that iterations are counted on, once known.
func (t *Tracker) Anchor() (Anchor, bool) { return t.result.Anchor, t.known }

// Agreement is the agreement at the period when it was learned, 0..1.
func (t *Tracker) Agreement() float64 { return t.result.Agreement }

// Expect announces that iterations will have this many calls from soon on (an
// order changes the micro-batches): the first such iteration is believed.
func (t *Tracker) Expect(period int) { t.expected = period }

// Reset forgets everything: another job, or other communicators.
func (t *Tracker) Reset() { *t = *NewTracker(t.cfg) }

// Observe takes in the next call and returns the iterations that it closed:
// usually none or one, several when the period has just been learned and the
// remembered calls hold whole iterations.
func (t *Tracker) Observe(c Call) []Iteration {
	t.remember(c)
	t.seen++
	if !t.known {
		return t.report(t.learn())
	}
	t.total++
	out := t.follow(c)
	switch {
	case t.doubtful(c):
		t.doubt()
	case t.since > 2*t.result.Period+strangerSlack:
		t.forget(t.since)
	case t.odd >= erraticRuns, t.odd >= changedRuns && !t.adopt():
		t.forget(t.recentCalls())
	case t.total >= t.recheckAt:
		out = append(out, t.recheck()...)
	}
	return t.report(out)
}

// report leaves out iterations that reach back into what was reported before
// the period was learned anew.
func (t *Tracker) report(its []Iteration) []Iteration {
	out := its[:0]
	for _, it := range its {
		if t.any && it.StartNs < t.reported {
			continue
		}
		it.Fresh, t.fresh = t.fresh, false
		t.any, t.reported = true, it.EndNs
		out = append(out, it)
	}
	return out
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

// learn tries when enough calls have come, and reports the iterations that
// the remembered calls hold.
func (t *Tracker) learn() []Iteration {
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
	return t.take(r)
}

// take makes a result the one in force and replays the calls since its first
// anchor.
func (t *Tracker) take(r Result) []Iteration {
	t.known, t.result = true, r
	t.started, t.fresh = false, true
	t.odd, t.total, t.recheckAt = 0, 0, len(t.calls)
	t.since, t.hits = 0, 0
	t.classes = make(map[Class]struct{})
	for _, c := range t.calls {
		t.classes[coarsenings[r.coarse](c.class())] = struct{}{}
	}
	if len(r.Starts) == 0 {
		return nil
	}
	var out []Iteration
	t.next = 0
	for i, c := range t.calls[max(r.Starts[0]-contextMax, 0):] {
		switch at := max(r.Starts[0]-contextMax, 0) + i; {
		case at == r.Starts[0]:
			t.begin(c, t.firstNumber(c))
			t.pass(c)
		case at > r.Starts[0]:
			out = append(out, t.follow(c)...)
		default:
			t.pass(c)
		}
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

func (t *Tracker) begin(c Call, number int64) {
	t.started = true
	t.last = Iteration{Number: number, StartNs: c.TimeNs, Ordinal: c.Ordinal}
	t.since, t.hits, t.gap = 0, 0, false
}

// follow closes the running iteration when the call is its anchor.
func (t *Tracker) follow(c Call) []Iteration {
	t.since++
	closes := t.closes(c)
	t.pass(c)
	if !closes {
		return nil
	}
	it := t.last
	it.EndNs, it.Calls = c.TimeNs, t.since
	lost := t.gap
	step := t.steps(c)
	t.count(it.Calls)
	t.begin(c, it.Number+step)
	if lost {
		return nil // records were lost in between: this is no iteration's time
	}
	return []Iteration{it}
}

// pass puts the call behind, and sees whether records of its communicator were
// lost before it.
func (t *Tracker) pass(c Call) {
	copy(t.behind[1:], t.behind[:])
	t.behind[0] = coarsenings[t.result.coarse](c.class())
	if c.Comm != t.result.Anchor.Class.Comm {
		return
	}
	if t.next > 0 && c.Ordinal > t.next {
		t.gap = true
	}
	t.next = c.Ordinal + 1
}

func (t *Tracker) closes(c Call) bool {
	if t.result.ByTime {
		return t.since >= t.result.Period
	}
	if coarsenings[t.result.coarse](c.class()) == t.result.Anchor.Class && t.inContext() {
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

// steps is how many iterations lie between the last anchor and this one: one,
// but where records were lost. An extra step's calls on the communicator are
// no lost records.
func (t *Tracker) steps(c Call) int64 {
	step := t.result.Anchor.OrdinalStep
	if step == 0 || !t.gap || c.Ordinal <= t.last.Ordinal {
		return 1
	}
	return max(1, int64((c.Ordinal-t.last.Ordinal+step/2)/step))
}
