package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Profile is what the newest complete window says about the job's cost, by the
// ranks of now, with the links judged in the last half hour. Only Links before
// the first complete window, and after a placement until the next one.
//
// SelfMs is device time outside communication per micro-batch of that rank's
// replica; what is done once an iteration (the optimizer's step) is spread over
// its micro-batches. A group's Calls, Bytes and TransferMs are those of one
// iteration: of a call the least duration over its members, summed over the
// iteration's calls, the median iteration of the window. Of a pair, Calls are
// its messages in both directions, Bytes their sum, and each message takes the
// first decile of the receives of its size, of the direction in which that is
// shorter: the rest is waiting for the sender (bubbles). It is an upper bound
// where a pipeline never has a message ready. A link's Ratio comes from its
// newest test, else from transfers: of a ring whose slow link is named, or of
// pairs; 1 = judged and healthy. A slow test that no incident stands for counts until all
// rings over the link are as fast as usual.
func (m *Machine) Profile() falcon.JobProfile {
	out := falcon.JobProfile{Links: m.links.linkSpeeds()}
	if m.profile.haveLast {
		out.SelfMs = m.Speeds()
		out.Groups = append(groupTransfers(m.profile.last.Groups), pairTransfers(m.profile.last.Pairs)...)
	}
	return out
}

// Profiled numbers the window that Profile comes from, and says when it was asked for: all
// that it shows is later. Both are zero before the first.
func (m *Machine) Profiled() (window uint64, from time.Time) {
	if !m.profile.haveLast {
		return 0, time.Time{}
	}
	return m.profile.lastWindow, m.profile.lastAsked
}

// groupTransfers sums up the classes of calls of each group.
func groupTransfers(classes []peer.Group) []falcon.GroupTransfer {
	var out []falcon.GroupTransfer
	most := 0.0 // calls of the most frequent kind of the group in hand
	classes = slices.Clone(classes)
	slices.SortStableFunc(classes, func(a, b peer.Group) int {
		return cmp.Or(
			cmp.Compare(dimensionOrder(a.Dimension), dimensionOrder(b.Dimension)),
			slices.Compare(a.Ranks, b.Ranks),
		)
	})
	for _, c := range classes {
		// a pipeline's are listed by pair
		if dimensionOrder(c.Dimension) < 0 ||
			c.Dimension == falcon.DimPP ||
			!isFinite(c.TotalMs) {
			continue
		}
		n := len(out) - 1
		if n < 0 ||
			out[n].Dimension != c.Dimension ||
			!slices.Equal(out[n].Ranks, c.Ranks) {
			out = append(out, falcon.GroupTransfer{
				Dimension: c.Dimension,
				Ranks:     slices.Clone(c.Ranks),
			})
			n++
			most = 0
		}
		g := &out[n]
		if c.CallsPerIt > most {
			most, g.Op = c.CallsPerIt, c.Op
		}
		g.Calls += int(math.Round(c.CallsPerIt))
		g.Bytes += int64(math.Round(float64(c.Bytes) * c.CallsPerIt))
		g.TransferMs += c.TotalMs
	}
	return out
}

func isFinite(v float64) bool {
	return v >= 0 && !math.IsInf(v, 0)
}

// dimensionOrder is how groups are listed: dimension by dimension; -1 for those of none.
func dimensionOrder(d falcon.Dimension) int {
	return slices.Index([]falcon.Dimension{falcon.DimDP, falcon.DimTP, falcon.DimPP, falcon.DimWorld}, d)
}

// pairTransfers joins both directions of the messages between two ranks.
func pairTransfers(ways []peer.Pair) []falcon.GroupTransfer {
	type message struct {
		a, b  falcon.Rank
		bytes int64
	}
	least := map[message]float64{}
	of := func(p *peer.Pair) message {
		return message{min(p.From, p.To), max(p.From, p.To), p.Bytes}
	}
	for i := range ways {
		k := of(&ways[i])
		if ms, seen := least[k]; !seen || ways[i].RecvMs < ms {
			least[k] = ways[i].RecvMs
		}
	}
	ways = slices.Clone(ways)
	slices.SortStableFunc(ways, func(p, q peer.Pair) int {
		x := of(&p)
		y := of(&q)
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	})
	var out []falcon.GroupTransfer
	for i := range ways {
		k := of(&ways[i])
		n := len(out) - 1
		if n < 0 || out[n].Ranks[0] != k.a || out[n].Ranks[1] != k.b {
			out = append(out, falcon.GroupTransfer{
				Dimension: falcon.DimPP,
				Ranks:     []falcon.Rank{k.a, k.b},
				Op:        falcon.OpRecv,
			})
			n++
		}
		g := &out[n]
		calls := ways[i].CallsPerIt
		g.Calls += int(math.Round(calls))
		g.Bytes += int64(math.Round(float64(k.bytes) * calls))
		g.TransferMs += least[k] * calls
	}
	return out
}
