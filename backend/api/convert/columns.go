package convert

import (
	"math"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// nsOf is a time in whole nanoseconds, which is what hooks measure.
func nsOf(ms float64) int64 {
	return int64(math.Round(ms * 1e6))
}

func msOf(ns int64) float64 { return float64(ns) / 1e6 }

// callsToColumns packs calls.
func callsToColumns(calls []falcon.CallTiming) *falconv1.CallColumns {
	type class struct {
		comm  uint64
		op    falcon.Op
		peer  int
		bytes int64
	}
	out := &falconv1.CallColumns{}
	places := map[class]uint32{}
	ordinals := map[uint64]uint64{}
	start := int64(0)
	queue := int64(0)
	for _, c := range calls {
		k := class{c.Comm, c.Op, c.Peer, c.Bytes}
		at, known := places[k]
		if !known {
			at = uint32(len(out.Classes)) //#nosec G115 -- at most as many as calls in a frame
			places[k] = at
			out.Classes = append(out.Classes, &falconv1.CallClass{
				Comm:  c.Comm,
				Op:    uint32(c.Op),
				Peer:  clamped(c.Peer),
				Bytes: c.Bytes,
			})
		}
		out.Class = append(out.Class, at)
		out.Ordinal = append(out.Ordinal,
			int64(c.Ordinal-ordinals[c.Comm]),
		) //#nosec G115 -- undone by the same wrap
		out.StartNs = append(out.StartNs, nsOf(c.StartMs)-start)
		out.QueueNs = append(out.QueueNs, nsOf(c.QueueMs)-queue)
		out.DurationNs = append(out.DurationNs, nsOf(c.DurationMs))
		ordinals[c.Comm], start, queue = c.Ordinal, nsOf(c.StartMs), nsOf(c.QueueMs)
	}
	return out
}

// ValidColumns reports whether the columns of a profile fit together. Without columns they do.
func ValidColumns(p *falconv1.CallColumns) bool {
	n := len(p.GetClass())
	if len(p.GetOrdinal()) != n ||
		len(p.GetStartNs()) != n ||
		len(p.GetDurationNs()) != n ||
		len(p.GetQueueNs()) != n {
		return false
	}
	for _, at := range p.GetClass() {
		if int64(at) >= int64(len(p.GetClasses())) {
			return false
		}
	}
	return true
}

func callsFromColumns(p *falconv1.CallColumns) []falcon.CallTiming {
	if !ValidColumns(p) || len(p.Class) == 0 {
		return nil
	}
	out := make([]falcon.CallTiming, len(p.Class))
	ordinals := map[uint64]uint64{}
	start := int64(0)
	queue := int64(0)
	for i, at := range p.Class {
		k := p.Classes[at]
		start += p.StartNs[i]
		queue += p.QueueNs[i]
		ordinal := ordinals[k.GetComm()] + uint64(p.Ordinal[i]) //#nosec G115 -- the wrap of callsToColumns
		ordinals[k.GetComm()] = ordinal
		out[i] = falcon.CallTiming{
			Comm:       k.GetComm(),
			Ordinal:    ordinal,
			Op:         falcon.Op(k.GetOp()),
			Peer:       int(k.GetPeer()),
			Bytes:      k.GetBytes(), //#nosec G115 -- an unknown op is none
			StartMs:    msOf(start),
			DurationMs: msOf(p.DurationNs[i]),
			QueueMs:    msOf(queue),
		}
	}
	return out
}
