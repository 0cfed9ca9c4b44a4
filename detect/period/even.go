package period

// Rules for a job that makes one call an iteration.
const (
	evenCalls  = 32   // calls of the kind that must be at hand
	evenShare  = 0.9  // of all calls, and of the times between them that must be even
	evenSpread = 0.25 // of their median: how far even times differ from it
	evenLeast  = 5e6  // ns between them: what comes faster is part of an iteration
)

// byEvenCalls takes every call for an iteration where nothing but calls of one kind comes,
// at even times: gradients that fit one bucket are reduced once. Where an iteration has
// several such calls, what counts as an iteration is a part of one, always the same, so
// that a slowdown is seen all the same.
func (c Config) byEvenCalls(calls []Call) (Result, bool) {
	seq := newSequence(calls, coarsenings[0])
	most := int32(-1)
	for id, at := range seq.at {
		if most < 0 || len(at) > len(seq.at[most]) {
			most = int32(id)
		}
	}
	if most < 0 || len(seq.at[most]) < max(evenCalls, int(evenShare*float64(len(calls)))) {
		return Result{}, false
	}
	at := seq.at[most]
	gaps := make([]float64, len(at)-1)
	for i := range gaps {
		gaps[i] = float64(calls[at[i+1]].TimeNs - calls[at[i]].TimeNs)
	}
	middle, share := evenness(gaps)
	if middle < evenLeast || share < evenShare {
		return Result{}, false
	}
	r := Result{Period: 1, Agreement: share}
	seq.setAnchor(spot{id: most, at: at}, 1, calls, &r)
	return r, true
}
