package cause

import (
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// What summaries read of a reading, as numbers and back. The rest is for consoles, which
// show the newest reading alone.

// Looks are put into room, which the caller uses again.

// taken is when a look was taken, against its arrival: the two go on alike.
func taken(at uint64, ns int64) uint64 { return uint64(ns) - at }

func gpuLook(room []uint64, at uint64, r *falcon.GPUReading) look {
	return look{
		append(room,
			at,
			taken(at, r.AtNs),
			uint64(r.SMClockMHz),
			uint64(r.MaxSMClockMHz),
			r.Reasons,
			r.ThermalNs,
			r.PowerBrakeNs,
			r.PowerCapNs,
			r.EccFatal,
			r.XidCount,
			uint64(r.LastXid),
			r.ProbeUs,
		),
		r.Err,
	}
}

func gpuOf(l look) falcon.GPUReading {
	v := l.values
	return falcon.GPUReading{
		AtNs:          int64(v[0] + v[1]),
		SMClockMHz:    uint32(v[2]),
		MaxSMClockMHz: uint32(v[3]),
		Reasons:       v[4],
		ThermalNs:     v[5],
		PowerBrakeNs:  v[6],
		PowerCapNs:    v[7],
		EccFatal:      v[8],
		XidCount:      v[9],
		LastXid:       uint32(v[10]),
		ProbeUs:       v[11],
		Err:           l.text,
	}
}

// Of a port: what the driver said beside the counters that are kept.
const (
	portActive = 1 << iota
	portEmulated
	portCounts // some other counter is above 0: see hasCounters
)

func bit(is bool, value uint64) uint64 {
	if is {
		return value
	}
	return 0
}

func nicLook(room []uint64, at uint64, r *falcon.NICReading) look {
	flags := bit(r.Active, portActive) |
		bit(r.Emulated, portEmulated) |
		bit(r.SymbolErrors|r.XmitBytes|r.RcvBytes > 0, portCounts)
	return look{
		append(room,
			at,
			taken(at, r.AtNs),
			r.RateMbps,
			flags,
			r.XmitWait,
			r.CNPSent,
			r.CNPHandled,
			r.ECNMarked,
			r.Retransmits,
			r.OutOfSequence,
			r.LinkDowned,
		),
		r.Err,
	}
}

func nicOf(l look) falcon.NICReading {
	v := l.values
	r := falcon.NICReading{
		AtNs:          int64(v[0] + v[1]),
		RateMbps:      v[2],
		Active:        v[3]&portActive != 0,
		Emulated:      v[3]&portEmulated != 0,
		XmitWait:      v[4],
		CNPSent:       v[5],
		CNPHandled:    v[6],
		ECNMarked:     v[7],
		Retransmits:   v[8],
		OutOfSequence: v[9],
		LinkDowned:    v[10],
		Err:           l.text,
	}
	if v[3]&portCounts != 0 {
		r.SymbolErrors = 1 // stands for those that are not kept
	}
	return r
}

// hostFixed is how many values precede the ranks' delays, two for each.
const hostFixed = 7

func hostLook(room []uint64, at uint64, r *falcon.HostReading) look {
	v := append(room,
		at,
		taken(at, r.AtNs),
		r.PressureUs,
		r.ThrottledUs,
		math.Float64bits(r.LoadPerCPU),
		math.Float64bits(r.StealShare),
		bit(r.Emulated, 1),
	)
	for _, rank := range slices.Sorted(maps.Keys(r.RunDelayNs)) {
		v = append(v, uint64(rank), r.RunDelayNs[rank])
	}
	return look{v, r.Err}
}

func hostOf(l look) falcon.HostReading {
	v := l.values
	r := falcon.HostReading{
		AtNs:        int64(v[0] + v[1]),
		PressureUs:  v[2],
		ThrottledUs: v[3],
		LoadPerCPU:  math.Float64frombits(v[4]),
		StealShare:  math.Float64frombits(v[5]),
		Emulated:    v[6] != 0,
		RunDelayNs:  make(map[falcon.Rank]uint64, (len(v)-hostFixed)/2),
		Err:         l.text,
	}
	for i := hostFixed; i+1 < len(v); i += 2 {
		r.RunDelayNs[falcon.Rank(v[i])] = v[i+1]
	}
	return r
}
