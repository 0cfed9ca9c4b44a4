package peer

import (
	"encoding/binary"
	"maps"

	"github.com/failslow/falcon"
)

// Healthy is the healthy job: self time and host lead per rank, transfer per group, receives
// per pair. The zero value and nil know nothing. One goroutine owns it; a copy stays as it is,
// as its maps are replaced, not changed.
type Healthy struct {
	selfMs, queueMs map[falcon.Rank]float64
	spreads         map[falcon.Rank]float64
	workMs          map[falcon.Rank]float64
	outside         map[falcon.Rank]spans
	microBatches    map[falcon.Rank]float64
	transferMs      map[class]float64
	logical         map[logical]float64 // the same by members: new communicators have new ids
	recvMs          map[reach]float64
	learnt          bool
	overlap         bool // calls hid computation
}

// logical is a class of calls by who takes part, whatever communicator it is, on one node or
// on several.
type logical struct {
	members   string
	op        falcon.Op
	bytes     int64
	internode bool
}

// reach is a way on one node, or between two.
type reach struct {
	way
	internode bool
}

func logicalOf(ranks []falcon.Rank, op falcon.Op, bytes int64, internode bool) logical {
	key := make([]byte, 0, 4*len(ranks))
	for _, r := range ranks {
		key = binary.AppendUvarint(key, uint64(max(r, 0)))
	}
	return logical{string(key), op, bytes, internode}
}

// Learn takes a window in as healthy, over what was known. The caller says
// that it is: peers and counters named no rank.
func (h *Healthy) Learn(res Result) {
	if h.selfMs == nil {
		h.selfMs = map[falcon.Rank]float64{}
		h.queueMs = map[falcon.Rank]float64{}
		h.workMs = map[falcon.Rank]float64{}
		h.outside = map[falcon.Rank]spans{}
		h.spreads = map[falcon.Rank]float64{}
		h.microBatches = map[falcon.Rank]float64{}
		h.transferMs = map[class]float64{}
		h.recvMs = map[reach]float64{}
		h.logical = map[logical]float64{}
	} else {
		h.unshare()
	}
	h.learnt = true
	h.overlap = res.Overlap
	for _, r := range res.Ranks {
		if r.Measured && r.WorkMs > 0 {
			h.workMs[r.Rank] = r.WorkMs / float64(max(1, r.MicroBatches))
		}
		if r.InsideMs > 0 {
			h.outside[r.Rank] = spans{r.OutsideMs, r.InsideMs}
		}
		switch {
		case !r.Measured:
		case res.Hidden: // of the gaps nothing is known, and work holds transfers
			delete(h.selfMs, r.Rank)
			delete(h.spreads, r.Rank)
			h.queueMs[r.Rank] = r.QueueMs
		default:
			h.selfMs[r.Rank], h.queueMs[r.Rank] = r.SelfMs, r.QueueMs
			h.spreads[r.Rank] = r.Spread
			h.microBatches[r.Rank] = float64(r.MicroBatches)
		}
	}
	for _, g := range res.Groups {
		h.transferMs[class{g.Comm, g.Op, g.Bytes}] = g.TransferMs
		if g.Dimension != falcon.DimWorld { // of a few bytes, and its key would be as long as the job is wide
			h.logical[logicalOf(g.Ranks, g.Op, g.Bytes, g.Internode)] = g.TransferMs
		}
	}
	for _, p := range res.Pairs {
		h.recvMs[reach{way{p.From, p.To, p.Bytes}, p.Internode}] = p.RecvMs
	}
}

// unshare replaces the maps, which copies of h may hold too.
func (h *Healthy) unshare() {
	h.selfMs = maps.Clone(h.selfMs)
	h.queueMs = maps.Clone(h.queueMs)
	h.spreads = maps.Clone(h.spreads)
	h.workMs = maps.Clone(h.workMs)
	h.outside = maps.Clone(h.outside)
	h.microBatches = maps.Clone(h.microBatches)
	h.transferMs = maps.Clone(h.transferMs)
	h.logical = maps.Clone(h.logical)
	h.recvMs = maps.Clone(h.recvMs)
}

var knowsNothing Healthy

// orNone is h, or the empty one for nil.
func (h *Healthy) orNone() *Healthy {
	if h == nil {
		return &knowsNothing
	}
	return h
}

// Known reports whether any window was learnt.
func (h *Healthy) Known() bool { return h != nil && h.learnt }

// selfTime is the healthy self time of rank r per micro-batch, 0 when unknown.
func (h *Healthy) selfTime(r falcon.Rank) float64 {
	return h.orNone().selfMs[r]
}

// workTime is the time of a healthy iteration in which rank r did not wait, per
// micro-batch, 0 when unknown.
func (h *Healthy) workTime(r falcon.Rank) float64 {
	return h.orNone().workMs[r]
}

func (h *Healthy) microBatchesOf(r falcon.Rank) float64 {
	return h.orNone().microBatches[r]
}

func (h *Healthy) queueTime(r falcon.Rank) float64 {
	return h.orNone().queueMs[r]
}

func (h *Healthy) gapSpread(r falcon.Rank) float64 {
	return h.orNone().spreads[r]
}

// transferTime is a communicator's healthy transfer, else that of the same members when they
// were on one node, or on several, as now.
func (h *Healthy) transferTime(c class, ranks []falcon.Rank, internode bool) float64 {
	h = h.orNone()
	if ms := h.transferMs[c]; ms > 0 || len(h.logical) == 0 {
		return ms
	}
	return h.logical[logicalOf(ranks, c.op, c.bytes, internode)]
}

func (h *Healthy) receiveTime(w way, internode bool) float64 {
	return h.orNone().recvMs[reach{w, internode}]
}

// Move puts the ranks on other devices. What belongs to the
// device follows it: its pace is its healthy self time over the median of those
// with its work, and at its new place it is expected to take that much of the
// median there. What belongs to a group or a pair stays with its ranks, for one node
// apart from several.
func (h *Healthy) Move(l falcon.Layout, was, now falcon.Placement) {
	if !h.Known() || len(was) != l.World() || len(now) != l.World() {
		return
	}
	from := formerRanks(was, now)
	h.selfMs, h.queueMs = movedWithDevices(l, h.selfMs, from), movedWithDevices(l, h.queueMs, from)
	spreads := map[falcon.Rank]float64{}
	for r, q := range from {
		if v, known := h.spreads[q]; known {
			spreads[falcon.Rank(r)] = v
		}
	}
	h.outside = map[falcon.Rank]spans{}
	// work is of the split and the links of then
	h.spreads = spreads
	h.workMs = map[falcon.Rank]float64{}
	h.transferMs = map[class]float64{} // the communicators are others
}

// formerRanks are the ranks that held each rank's device before, -1 where none did.
func formerRanks(was, now falcon.Placement) []falcon.Rank {
	held := make(map[falcon.Device]falcon.Rank, len(was))
	for r, d := range was {
		held[d] = falcon.Rank(r)
	}
	from := make([]falcon.Rank, len(now))
	for r, d := range now {
		q, known := held[d]
		if from[r] = q; !known || d == "" {
			from[r] = -1
		}
	}
	return from
}

// movedWithDevices moves a value per rank with the devices.
func movedWithDevices(
	l falcon.Layout,
	v map[falcon.Rank]float64,
	from []falcon.Rank,
) map[falcon.Rank]float64 {
	usual := make([]float64, len(from))
	eachColumn(l, func(column []falcon.Rank) {
		var all []float64
		for _, r := range column {
			if x := v[r]; x > 0 {
				all = append(all, x)
			}
		}
		middle := falcon.Median(all)
		for _, r := range column {
			usual[r] = middle
		}
	})
	out := map[falcon.Rank]float64{}
	for r, q := range from {
		ms := usual[r]
		if q >= 0 && v[q] > 0 && usual[q] > 0 {
			ms *= v[q] / usual[q]
		}
		if ms > 0 {
			out[falcon.Rank(r)] = ms
		}
	}
	return out
}
