package peer

import "github.com/failslow/falcon"

// Healthy is what a job looked like when nothing was wrong: self time and host
// lead per rank, transfer per group, receives per pair. The zero value and nil
// know nothing. One goroutine owns it.
type Healthy struct {
	selfMs, queueMs map[falcon.Rank]float64
	spreads         map[falcon.Rank]float64
	microBatches    map[falcon.Rank]float64
	transferMs      map[class]float64
	recvMs          map[way]float64
}

// Learn takes a window in as healthy, over what was known. The caller says
// that it is: peers and counters named nobody.
func (h *Healthy) Learn(res Result) {
	if h.selfMs == nil {
		h.selfMs, h.queueMs = map[falcon.Rank]float64{}, map[falcon.Rank]float64{}
		h.spreads, h.microBatches = map[falcon.Rank]float64{}, map[falcon.Rank]float64{}
		h.transferMs, h.recvMs = map[class]float64{}, map[way]float64{}
	}
	for _, r := range res.Ranks {
		if r.Measured {
			h.selfMs[r.Rank], h.queueMs[r.Rank] = r.SelfMs, r.QueueMs
			h.spreads[r.Rank], h.microBatches[r.Rank] = r.Spread, float64(r.MicroBatches)
		}
	}
	for _, g := range res.Groups {
		h.transferMs[class{g.Comm, g.Op, g.Bytes}] = g.TransferMs
	}
	for _, p := range res.Pairs {
		h.recvMs[way{p.From, p.To, p.Bytes}] = p.RecvMs
	}
}

// Known says whether any window was learnt.
func (h *Healthy) Known() bool { return h != nil && len(h.selfMs) > 0 }

// SelfMs is the healthy self time of rank r per micro-batch, 0 when unknown.
func (h *Healthy) SelfMs(r falcon.Rank) float64 { return h.self(r) }

func (h *Healthy) self(r falcon.Rank) float64 {
	if h == nil {
		return 0
	}
	return h.selfMs[r]
}

func (h *Healthy) micro(r falcon.Rank) float64 {
	if h == nil {
		return 0
	}
	return h.microBatches[r]
}

func (h *Healthy) queue(r falcon.Rank) float64 {
	if h == nil {
		return 0
	}
	return h.queueMs[r]
}

func (h *Healthy) spread(r falcon.Rank) float64 {
	if h == nil {
		return 0
	}
	return h.spreads[r]
}

func (h *Healthy) transfer(c class) float64 {
	if h == nil {
		return 0
	}
	return h.transferMs[c]
}

func (h *Healthy) receive(w way) float64 {
	if h == nil {
		return 0
	}
	return h.recvMs[w]
}
