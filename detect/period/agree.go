package period

import (
	"cmp"
	"slices"
)

// byClass finds the smallest lag whose agreement suffices.
func (c Config) byClass(s sequence, calls []Call) (Result, bool) {
	eligible := s.eligible()
	for _, lag := range s.candidates(eligible) {
		if !s.promising(eligible, lag, c.Agreement) {
			continue
		}
		if a := s.agreement(eligible, lag); a >= c.Agreement {
			r := Result{Period: lag, Agreement: a}
			if s.findAnchor(s.steadyClasses(eligible, lag), nil, lag, calls, &r) {
				return r, true
			}
		}
	}
	return Result{}, false
}

// steadyClasses are the classes that come back after the lag.
func (s sequence) steadyClasses(eligible []int32, lag int) []int32 {
	var out []int32
	for _, id := range eligible {
		if s.classAgreement(id, lag) >= DefaultAgreement {
			out = append(out, id)
		}
	}
	return out
}

// eligible lists the classes that come often enough to speak, rarest first.
func (s sequence) eligible() []int32 {
	var out []int32
	for id, at := range s.at {
		if len(at) >= eligibleCount {
			out = append(out, int32(id))
		}
	}
	slices.SortStableFunc(out, func(a, b int32) int {
		return cmp.Compare(len(s.at[a]), len(s.at[b]))
	})
	return out
}

// candidates are the gaps between calls of the rarest classes, ascending: the
// period must bring each of them back to itself.
func (s sequence) candidates(eligible []int32) []int {
	var lags []int
	most := longestLag(len(s.ids))
	for _, id := range eligible[:min(len(eligible), rareClasses)] {
		at := s.at[id]
		for _, from := range []int{0, len(at) / 3, len(at) / 2} {
			for i := from + 1; i < len(at) && len(lags) < maxCandidates; i++ {
				if lag := int(at[i] - at[from]); lag <= most {
					lags = append(lags, lag)
				}
			}
		}
	}
	slices.Sort(lags)
	return slices.Compact(lags)
}

// promising rules out lags by the rarest classes alone, in time proportional
// to how rare they are; it never rules out a lag that agreement would take.
func (s sequence) promising(eligible []int32, lag int, least float64) bool {
	allowed := (1 - least) * float64(len(eligible))
	for _, id := range eligible[:min(len(eligible), rareClasses)] {
		allowed -= 1 - s.classAgreement(id, lag)
		if allowed < -1e-9 {
			return false
		}
	}
	return true
}

// agreement at a lag, averaged over classes: each class's is the share of its
// calls in the overlap that meet a call of the same class.
func (s sequence) agreement(eligible []int32, lag int) float64 {
	sum := 0.0
	for _, id := range eligible {
		sum += s.classAgreement(id, lag)
	}
	return sum / float64(max(len(eligible), 1))
}

func (s sequence) classAgreement(id int32, lag int) float64 {
	at := s.at[id]
	n := int32(len(s.ids))
	k := int32(lag)
	hit, head, tail := 0, 0, 0
	for _, p := range at {
		if p < n-k {
			head++
			if s.ids[p+k] == id {
				hit++
			}
		}
		if p >= k {
			tail++
		}
	}
	if head == 0 && tail == 0 {
		return 0
	}
	return float64(hit) / float64(max(head, tail))
}
