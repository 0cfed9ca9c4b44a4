package peer

import "github.com/failslow/falcon"

// measureOutside fills in how long each rank's device lies between the calls of one
// iteration and the next, and how long it is from the first to the last call of one: a rank
// that waits for data, or a job that saves its state, is longer between them alone. Both need
// a window of two iterations whose calls repeat.
func (w *Window) measureOutside(res *Result, profiles []falcon.RankProfile) {
	if w.NoStarts {
		return
	}
	for i := range profiles {
		p := &profiles[i]
		r := &res.Ranks[p.Rank]
		r.OutsideMs, r.InsideMs = outsideOf(p)
		own, known := w.Healthy.orNone().outside[p.Rank]
		if known && r.InsideMs > 0 {
			r.OwnOutsideMs, r.OwnInsideMs = own.outside, own.inside
		}
	}
}

// spans are the two times of a healthy rank, ms.
type spans struct{ outside, inside float64 }

// outsideOf is the median time between the iterations of a window, and inside them; 0 where
// the calls do not repeat.
func outsideOf(p *falcon.RankProfile) (outside, inside float64) {
	n := p.Iterations
	if n < 2 || len(p.Calls) < n || len(p.Calls)%n != 0 {
		return 0, 0
	}
	per := len(p.Calls) / n
	var out, in []float64
	ended := 0.0
	for k := range n {
		calls := p.Calls[k*per : (k+1)*per]
		start := calls[0].StartMs
		end := 0.0
		for i := range calls {
			if calls[i].Op != p.Calls[i].Op {
				return 0, 0
			}
			end = max(end, calls[i].StartMs+calls[i].DurationMs)
		}
		if k > 0 {
			out = append(out, max(0, start-ended))
		}
		in = append(in, end-start)
		ended = end
	}
	return falcon.Median(out), falcon.Median(in)
}
