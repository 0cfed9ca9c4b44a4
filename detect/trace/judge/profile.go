package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
)

// ProfileReport lists the suspicious groups, links and ranks of a profile, each with
// its rule and numbers.
type ProfileReport struct {
	Groups     []GroupFinding `json:"groups"`
	Pairs      []PairFinding  `json:"pairs"`
	Ranks      []RankFinding  `json:"ranks"`
	AllSlow    bool           `json:"all_slow"`    // all ranks are equally slower than in the healthy profile
	SlowStages []int          `json:"slow_stages"` // stages whose ranks are equally slower
	Overlap    *Overlap       `json:"overlap,omitempty"`
	Checked    Checked        `json:"checked"`
	Rules      RulesReport    `json:"rules"`
}

// Overlap describes communication that overlaps computation. If it does, ranks are
// judged by their own past and by when they enter collectives.
type Overlap struct {
	Hidden bool `json:"hidden"` // gaps between calls do not show the computation
	// gaps as a share of the time in which ranks do not wait: median of the ranks
	GapShare float64 `json:"gap_share"`
}

// Checked counts the comparisons.
type Checked struct {
	Groups int `json:"groups"`
	Pairs  int `json:"pairs"`
	Ranks  int `json:"ranks"` // with a self time
}

// RulesReport lists the thresholds.
type RulesReport struct {
	Suspect  float64 `json:"suspect"`
	WaitOver float64 `json:"wait_over"`
	MinPeers int     `json:"min_peers"`
}

// GroupFinding is one suspicious class of calls of one group.
type GroupFinding struct {
	Dimension     falcon.Dimension `json:"dimension"`
	Ranks         []falcon.Rank    `json:"ranks"`
	Op            string           `json:"op"`
	Bytes         int64            `json:"bytes"`
	Internode     bool             `json:"internode"`
	TransferMs    float64          `json:"transfer_ms"`
	BaseMs        float64          `json:"base_ms"` // reference of the transfer, 0 = none
	Ratio         float64          `json:"ratio"`
	Basis         peer.Basis       `json:"basis"`
	Compared      int              `json:"compared"` // other groups of its class
	WaitMs        float64          `json:"wait_ms"`  // longest member's
	Communication bool             `json:"communication"`
	Computation   bool             `json:"computation"`
	Awaited       []falcon.Rank    `json:"awaited"` // members that the others wait for
	Rule          string           `json:"rule"`
}

// PairFinding is one suspicious direction between two ranks.
type PairFinding struct {
	From   falcon.Rank `json:"from"`
	To     falcon.Rank `json:"to"`
	Bytes  int64       `json:"bytes"`
	RecvMs float64     `json:"recv_ms"`
	BaseMs float64     `json:"base_ms"`
	Ratio  float64     `json:"ratio"`
	Basis  peer.Basis  `json:"basis"`
	Rule   string      `json:"rule"`
}

// RankFinding is one rank that computes slower than its peers.
type RankFinding struct {
	Rank    falcon.Rank `json:"rank"`
	DP      int         `json:"dp"`
	PP      int         `json:"pp"`
	TP      int         `json:"tp"`
	SelfMs  float64     `json:"self_ms"`
	BaseMs  float64     `json:"base_ms"`
	Ratio   float64     `json:"ratio"`
	Basis   peer.Basis  `json:"basis"`
	Peers   int         `json:"peers"`
	Awaited bool        `json:"awaited"`
	Rule    string      `json:"rule"`
}

// everyExcess applies the rules to excesses of any size, because a file has no
// iteration time to compare with.
const everyExcess = 1e-12

// Profile judges one profile by the rules (zero fields mean the defaults).
func Profile(p trace.Profile, rules peer.Rules) (ProfileReport, error) {
	w, err := newWindow(p)
	if err != nil {
		return ProfileReport{}, err
	}
	rules = rulesOfTraces(rules)
	w.win.Rules = rules
	if p.Healthy != nil {
		before, err := newWindow(*p.Healthy)
		if err != nil {
			return ProfileReport{}, err
		}
		w.renumber(before)
		before.win.Rules = rules
		w.win.Healthy = &peer.Healthy{}
		w.win.Healthy.Learn(peer.Judge(before.win))
	}
	return w.makeReport(peer.Judge(w.win), len(p.SelfMs) > 0), nil
}

func rulesOfTraces(r peer.Rules) peer.Rules {
	if r.Matter <= 0 {
		r.Matter = everyExcess
	}
	return r.WithDefaults()
}

// window is a profile in the form of the live detector.
type window struct {
	win     peer.Window
	comms   map[string]uint64
	overlap bool
}

// unmeasured is the self time of all ranks if a profile has none, so that no rank is
// suspicious.
const unmeasured = 1

func newWindow(p trace.Profile) (*window, error) {
	w := &window{
		comms: map[string]uint64{},
		win: peer.Window{
			Layout:   p.Layout,
			Comms:    map[falcon.Rank][]falcon.Comm{},
			Profiles: make([]falcon.RankProfile, p.Layout.World()),
			NoStarts: len(p.SelfMs) == 0 ||
				slices.ContainsFunc(p.Groups, func(g trace.ProfileGroup) bool { return g.Starts == nil }),
		},
	}
	for r := range w.win.Profiles {
		w.win.Profiles[r] = falcon.RankProfile{
			Rank:       falcon.Rank(r),
			Iterations: p.Iterations,
			SelfMs:     unmeasured,
		}
		if len(p.SelfMs) > 0 {
			w.win.Profiles[r].SelfMs = p.SelfMs[r]
		}
	}
	var err error
	if w.win.Placement, err = placeRanks(p); err != nil {
		return nil, err
	}
	ordinals := map[uint64]uint64{}
	for _, g := range p.Groups {
		id := w.commNumber(g)
		for k := range g.Calls {
			w.addCall(g, id, ordinals[id], k)
			ordinals[id]++
		}
	}
	for r := range w.win.Profiles {
		slices.SortStableFunc(w.win.Profiles[r].Calls, func(a, b falcon.CallTiming) int {
			return cmp.Compare(a.StartMs, b.StartMs)
		})
	}
	return w, nil
}

// commNumber numbers the groups by dimension and members, independent of their calls.
func (w *window) commNumber(g trace.ProfileGroup) uint64 {
	key := fmt.Sprint(g.Dimension, g.Ranks)
	id, known := w.comms[key]
	if known {
		return id
	}
	id = uint64(len(w.comms) + 1)
	w.comms[key] = id
	for i, r := range g.Ranks {
		w.win.Comms[r] = append(w.win.Comms[r], falcon.Comm{
			ID:         id,
			Dimension:  g.Dimension,
			Size:       len(g.Ranks),
			RankInComm: i,
		})
	}
	return id
}

func (w *window) addCall(g trace.ProfileGroup, id, ordinal uint64, k int) {
	for i, r := range g.Ranks {
		if isPairOp(g.Op) && i == 0 {
			continue // eager sends finish early: the receive is used
		}
		c := falcon.CallTiming{
			Comm:       id,
			Ordinal:    ordinal,
			Op:         g.Op,
			Peer:       -1,
			Bytes:      g.Bytes,
			DurationMs: g.Calls[k][i],
		}
		if g.Starts != nil {
			c.StartMs = g.Starts[k][i]
		}
		if isPairOp(g.Op) {
			c.Op = falcon.OpRecv
			c.Peer = 0
		}
		w.win.Profiles[r].Calls = append(w.win.Profiles[r].Calls, c)
	}
}

func isPairOp(op falcon.Op) bool {
	return op == falcon.OpSend || op == falcon.OpRecv
}

// renumber assigns the groups of an earlier window the numbers of this one. Groups
// that this one lacks get higher numbers.
func (w *window) renumber(before *window) {
	to := map[uint64]uint64{}
	next := uint64(len(w.comms) + 1)
	for key, id := range before.comms {
		if now, known := w.comms[key]; known {
			to[id] = now
			continue
		}
		to[id] = next
		next++
	}
	for r := range before.win.Profiles {
		for i := range before.win.Profiles[r].Calls {
			c := &before.win.Profiles[r].Calls[i]
			c.Comm = to[c.Comm]
		}
	}
	for r := range before.win.Comms {
		for i := range before.win.Comms[r] {
			c := &before.win.Comms[r][i]
			c.ID = to[c.ID]
		}
	}
}

// placeRanks assigns nodes to ranks, so that groups cross nodes as in the file:
// members of a group within a node share one, other ranks have their own.
func placeRanks(p trace.Profile) (falcon.Placement, error) {
	node := make([]int, p.Layout.World())
	for i := range node {
		node[i] = i
	}
	find := func(r falcon.Rank) int {
		i := int(r)
		for node[i] != i {
			node[i] = node[node[i]]
			i = node[i]
		}
		return i
	}
	for _, g := range p.Groups {
		for _, r := range g.Ranks[1:] {
			if !g.Internode {
				node[find(r)] = find(g.Ranks[0])
			}
		}
	}
	for i, g := range p.Groups {
		first := find(g.Ranks[0])
		if g.Internode &&
			!slices.ContainsFunc(g.Ranks, func(r falcon.Rank) bool {
				return find(r) != first
			}) {
			return nil, fmt.Errorf(
				"%w: group %d is marked as crossing nodes, but other groups within a node contain all its ranks; check internode",
				trace.ErrMalformed, i,
			)
		}
	}
	out := make(falcon.Placement, len(node))
	for r := range out {
		out[r] = falcon.NewDevice(falcon.Node(fmt.Sprint("n", find(falcon.Rank(r)))), r)
	}
	return out, nil
}

func (w *window) makeReport(res peer.Result, selfKnown bool) ProfileReport {
	rules := w.win.Rules
	out := ProfileReport{
		Groups:     []GroupFinding{},
		Pairs:      []PairFinding{},
		Ranks:      []RankFinding{},
		AllSlow:    res.AllSlow,
		SlowStages: append([]int{}, res.SlowStages...),
		Checked:    Checked{Groups: len(res.Groups), Pairs: len(res.Pairs)},
		Rules:      RulesReport{rules.Suspect, rules.WaitOver, rules.MinPeers},
	}
	for _, g := range res.Groups {
		if g.Suspect || g.Waiting {
			out.Groups = append(out.Groups, groupFinding(g, res, rules))
		}
	}
	for _, p := range res.Pairs {
		if p.Suspect {
			out.Pairs = append(out.Pairs, pairFinding(p, rules))
		}
	}
	if res.Overlap {
		w.overlap = true
		out.Overlap = &Overlap{Hidden: res.Hidden, GapShare: res.GapShare}
	}
	if selfKnown {
		out.Checked.Ranks = len(res.Ranks)
		for _, r := range res.Slow {
			out.Ranks = append(out.Ranks, w.rankFinding(res.Ranks[r]))
		}
	}
	return out
}

func groupFinding(g peer.Group, res peer.Result, rules peer.Rules) GroupFinding {
	f := GroupFinding{
		Dimension:     g.Dimension,
		Ranks:         g.Ranks,
		Op:            g.Op.String(),
		Bytes:         g.Bytes,
		Internode:     g.Internode,
		TransferMs:    g.TransferMs,
		BaseMs:        g.BaseMs,
		Ratio:         g.Ratio,
		Basis:         g.Basis,
		Compared:      g.Classmates,
		WaitMs:        g.WaitMs,
		Communication: g.Suspect,
		Computation:   g.Waiting,
		Awaited:       []falcon.Rank{},
	}
	if g.Suspect {
		f.Rule = fmt.Sprintf("transfer %s is %.3g x the %s %s, over %.3g: slow communication",
			falcon.DurationText(g.TransferMs), g.Ratio, usualTime(g.Basis),
			falcon.DurationText(g.BaseMs), rules.Suspect)
	}
	if g.Waiting {
		if f.Rule != "" {
			f.Rule += "; "
		}
		f.Rule += fmt.Sprintf(
			"a member waits over %.3g x the transfer: slow computation elsewhere in the group",
			rules.WaitOver,
		)
		for _, r := range g.Ranks {
			if res.Ranks[r].Awaited {
				f.Awaited = append(f.Awaited, r)
			}
		}
	}
	return f
}

func usualTime(b peer.Basis) string {
	switch b {
	case peer.ByPeers:
		return "median of its class,"
	case peer.ByOwn:
		return "own healthy"
	case peer.ByFew:
		return "median of the few others of its class,"
	}
	return "unknown"
}

func pairFinding(p peer.Pair, rules peer.Rules) PairFinding {
	return PairFinding{
		From:   p.From,
		To:     p.To,
		Bytes:  p.Bytes,
		RecvMs: p.RecvMs,
		BaseMs: p.BaseMs,
		Ratio:  p.Ratio,
		Basis:  p.Basis,
		Rule: fmt.Sprintf("a receive takes at least %s, %.3g x the %s %s, over %.3g: slow link",
			falcon.DurationText(p.RecvMs), p.Ratio, usualTime(p.Basis),
			falcon.DurationText(p.BaseMs), rules.Suspect),
	}
}

func (w *window) rankFinding(r peer.Rank) RankFinding {
	at := w.win.Layout.Coord(r.Rank)
	f := RankFinding{
		Rank:    r.Rank,
		DP:      at.DP,
		PP:      at.PP,
		TP:      at.TP,
		SelfMs:  r.SelfMs,
		BaseMs:  r.PeerMs,
		Ratio:   r.Ratio,
		Basis:   r.Basis,
		Peers:   r.Peers,
		Awaited: r.Awaited,
	}
	against := fmt.Sprintf("median %s of %d same-stage peers", falcon.DurationText(r.PeerMs), r.Peers)
	if r.Basis == peer.ByOwn {
		f.BaseMs = r.OwnMs
		against = "own healthy " + falcon.DurationText(r.OwnMs)
	}
	if w.overlap {
		f.Rule = fmt.Sprintf(
			"calls overlap: it works for %s of an iteration, entered last in %d of %d collectives, and takes at least %.3g x as long as its peers and its own past, over %.3g: slow computation",
			falcon.DurationText(r.WorkMs), r.EnteredLast, r.Entered, r.Ratio, w.win.Rules.Suspect,
		)
		return f
	}
	f.Rule = fmt.Sprintf("self time %s is %.3g x the %s, over %.3g: slow computation",
		falcon.DurationText(r.SelfMs), r.Ratio, against, w.win.Rules.Suspect)
	return f
}
