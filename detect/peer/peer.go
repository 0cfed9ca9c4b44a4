package peer

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Rules are the thresholds of the comparison; zero means the default.
type Rules struct {
	// Suspect is the ratio over the median of its kind above which a group's
	// transfer or a rank's self time is suspicious; default 1.1 (FALCON §4.3).
	Suspect float64 `yaml:"suspect"`
	// WaitOver is how many transfers a wait must exceed to count; default 2.
	WaitOver float64 `yaml:"-"`
	// Margin is how much slower the least slow accused rank must be than the
	// slowest rank that is not accused; default 1.03.
	Margin float64 `yaml:"-"`
	// MinPeers is how many peers make a median that can be trusted; with fewer
	// the own healthy profile decides; default 3.
	MinPeers int `yaml:"-"`
	// Matter is the share of the iteration that an excess of transfer must cost
	// to be worth a name; default 0.02. Below it lie calls of a few bytes.
	Matter float64 `yaml:"-"`
	// Small says that the culprit of a small slowdown is looked for, with a Suspect
	// below the differences that machines have anyway: a rank must also be slow
	// against its own healthy past, and stand out of what the ranks differ by.
	Small bool `yaml:"-"`
}

// WithDefaults are the rules with the default of each value that is not positive.
func (r Rules) WithDefaults() Rules {
	def := func(v *float64, d float64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&r.Suspect, 1.1)
	def(&r.WaitOver, 2)
	def(&r.Margin, 1.03)
	def(&r.Matter, 0.02)
	if r.MinPeers <= 0 {
		r.MinPeers = 3
	}
	return r
}

// Window is one profile window of a job.
type Window struct {
	Layout    falcon.Layout
	Placement falcon.Placement
	Comms     map[falcon.Rank][]falcon.Comm // may be nil: dimensions are then read from the members
	Profiles  []falcon.RankProfile
	Healthy   *Healthy // own past of each rank and group; nil when there is none
	Rules     Rules
	// NoStarts says that calls have no start, or that self times are not the gaps
	// between them: overlap is not looked for.
	NoStarts bool

	directory map[uint64]map[int]falcon.Rank // by communicator and rank in it
}

// Basis says what a rank or a group was compared with.
type Basis string

// The bases of comparison, from the best down.
const (
	ByPeers Basis = "peers" // at least MinPeers of its kind
	ByOwn   Basis = "own"   // its own healthy profile, what all share taken out
	ByFew   Basis = "few"   // fewer peers than MinPeers and no healthy profile
	ByNone  Basis = ""      // nothing to compare with
)

// Rank is one rank's timing in the window.
type Rank struct {
	Rank     falcon.Rank
	Measured bool
	SelfMs   float64 // per micro-batch
	PeerMs   float64 // median of its peers, or more (expected) where it has fewer micro-batches; 0 = none
	Peers    int     // others that do the same work, measured
	OwnMs    float64 // own healthy self time, or more (expected) where it had more micro-batches; 0 = none
	OwnRatio float64 // SelfMs / OwnMs, 0 = none
	Ratio    float64 // what is judged: SelfMs over its basis, 0 = none
	Basis    Basis
	Slow     bool    // Ratio above the rule: the culprit of a computation fault
	Awaited  bool    // others wait for it, or for its replica, over 2 × transfer
	WaitMs   float64 // per iteration, in TP and DP collectives
	RecvMs   float64 // per iteration, in pipeline receives
	QueueMs  float64 // host lead over the device
	LeadMs   float64 // the host lead it is compared with: own healthy one, else its peers', 0 = none
	Spread   float64 // by how much its passes differ from iteration to iteration, as a share

	MicroBatches int // per iteration, 0 = unknown

	// WorkMs is the part of an iteration in which the rank does not wait for others
	// to enter a call: computation and transfers, whatever overlaps; 0 = unknown.
	WorkMs      float64
	Worked      []float64 // of each iteration of the window but the first
	Entered     int       // collectives that all their members measured
	EnteredLast int       // of which it entered last
	// behind the median of its peers, at the collective of an iteration that it comes latest to
	LateMs  float64
	OwnWork float64 // WorkMs per micro-batch over its own healthy one, 0 = unknown

	// Between the calls of two iterations, and from the first to the last call of one, on the
	// device, with those of the healthy rank; InsideMs 0 = unknown, OwnInsideMs likewise.
	OutsideMs, InsideMs       float64
	OwnOutsideMs, OwnInsideMs float64

	Steps []float64 // self time of each iteration of the window, per micro-batch; nil = not distinguished
	// each over the median of its same-stage peers' in that iteration, 0 = nothing to compare
	StepRatio []float64
	StepWaits []float64 // wait of each iteration, in TP and DP collectives
}

// Group is one class of collective calls of one communicator.
type Group struct {
	Comm       uint64
	Dimension  falcon.Dimension
	Op         falcon.Op
	Bytes      int64
	Ranks      []falcon.Rank // ascending
	Nodes      []falcon.Node // in rank order, each once
	Internode  bool
	TransferMs float64 // lower quartile over the calls
	TotalMs    float64 // transfers of one iteration, summed: median over the iterations
	WaitMs     float64 // largest member's wait per iteration
	BaseMs     float64 // what TransferMs is compared with, 0 = nothing
	Classmates int     // other groups of the same dimension, operation, bytes and reach
	OwnMs      float64 // its own healthy TransferMs, 0 = unknown
	// most of its kind, itself among them, are slow against their own past: they clear no rank
	Crowded    bool
	Ratio      float64
	Basis      Basis
	CallsPerIt float64
	Suspect    bool // transfer above the rule
	Waiting    bool // a member's wait is above 2 × transfer
}

// Same reports whether both are the same messages of the same ranks.
func (g *Group) Same(x *Group) bool {
	return x.Dimension == g.Dimension &&
		x.Op == g.Op &&
		x.Bytes == g.Bytes &&
		slices.Equal(x.Ranks, g.Ranks)
}

// SlowIn reports whether the same messages of a group were slow in another window, or not measured.
func (g *Group) SlowIn(res *Result) bool {
	i := slices.IndexFunc(res.Groups, func(x Group) bool { return g.Same(&x) })
	return i < 0 || res.Groups[i].Suspect
}

// Pair is the receives of one rank from one other.
type Pair struct {
	From, To   falcon.Rank
	Bytes      int64
	Internode  bool
	RecvMs     float64 // first decile over the receives: bubbles left out
	BaseMs     float64
	Peers      int
	Ratio      float64
	OwnMs      float64 // its own healthy RecvMs, 0 = unknown
	Crowded    bool    // most of its kind, itself among them, are slow against their own past
	Basis      Basis
	CallsPerIt float64
	Suspect    bool
}

// SlowIn reports whether the receives of a pair were slow in another window, or not measured.
func (p *Pair) SlowIn(res *Result) bool {
	i := slices.IndexFunc(res.Pairs, func(x Pair) bool {
		return x.From == p.From && x.To == p.To && x.Bytes == p.Bytes
	})
	return i < 0 || res.Pairs[i].Suspect
}

// Result is what the window says.
type Result struct {
	Ranks       []Rank // one per rank of the layout
	Groups      []Group
	Pairs       []Pair
	Missing     int     // ranks of the layout without a usable profile
	Timed       uint64  // calls that the profiles hold
	Dropped     uint64  // timings lost
	IterationMs float64 // longest span of a rank over its iterations, 0 = unknown
	Slow        []falcon.Rank
	Margin      float64 // least accused ratio over the greatest other, 0 = no rank accused or no other rank
	Clear       bool    // Margin is above the rule, or there is no other rank
	AllSlow     bool    // every rank slowed alike against its own past, none against its peers
	AllRatio    float64 // median own ratio where AllSlow
	Uneven      bool    // all ranks' work differs from iteration to iteration
	Spread      float64 // median of the ranks' spreads
	// HealthySpread is the same of the healthy profile, 0 = unknown.
	HealthySpread float64
	SlowStages    []int // stages that slowed alike as a whole, others did not
	// Overlap says that calls of a rank run at once, or hide computation.
	Overlap bool
	// Hidden says that gaps between calls show little of the computation: SelfMs is
	// then WorkMs per micro-batch, and nothing is compared with the healthy past.
	Hidden     bool
	CommonWork float64 // the least OwnWork, at least 1: what all ranks share
	GapShare   float64 // gaps between calls over WorkMs: median of the ranks
}

// DroppedShare is the share of a window's calls whose timings were lost.
func (r *Result) DroppedShare() float64 {
	if r.Dropped == 0 {
		return 0
	}
	return float64(r.Dropped) / (float64(r.Dropped) + float64(r.Timed))
}

// Judge compares the ranks and groups of a window.
func Judge(w Window) Result {
	w.Rules = w.Rules.WithDefaults()
	w.indexComms()
	res := Result{Ranks: make([]Rank, w.Layout.World())}
	profiles := w.usableProfiles()
	for _, p := range profiles {
		res.Dropped += p.Dropped
		res.Timed += uint64(len(p.Calls))
		res.IterationMs = math.Max(res.IterationMs, windowSpanMs(p))
	}
	joined := w.joinCalls(profiles)
	w.measureArrivals(&res, joined)
	w.measureOutside(&res, profiles)
	w.judgeSelf(&res, profiles)
	w.judgeGroups(&res, joined.classes)
	w.judgePairs(&res, profiles)
	w.judgeQueues(&res)
	w.judgeSteps(&res, profiles)
	return res
}

// indexComms turns the communicators around: who is rank i of each.
func (w *Window) indexComms() {
	w.directory = map[uint64]map[int]falcon.Rank{}
	for r, comms := range w.Comms {
		for _, c := range comms {
			if w.directory[c.ID] == nil {
				w.directory[c.ID] = map[int]falcon.Rank{}
			}
			w.directory[c.ID][c.RankInComm] = r
		}
	}
}

// selfLeastMs is what device events resolve: less was not measured.
const selfLeastMs = 0.001

// usableProfiles are the valid profiles of ranks of the layout, one per rank, by
// rank. One without gaps is valid where its calls fill the window.
func (w *Window) usableProfiles() []falcon.RankProfile {
	seen := make([]*falcon.RankProfile, w.Layout.World())
	n := 0
	for i := range w.Profiles {
		p := &w.Profiles[i]
		if p.Rank < 0 ||
			int(p.Rank) >= len(seen) ||
			seen[p.Rank] != nil ||
			!measuresSelf(p) &&
				!(p.SelfMs >= 0 && p.SelfMs < selfLeastMs && p.Iterations > 0 && len(p.Calls) > 0) {
			continue
		}
		seen[p.Rank] = p
		n++
	}
	out := make([]falcon.RankProfile, 0, n)
	for _, p := range seen {
		if p != nil {
			out = append(out, *p)
		}
	}
	return out
}

func measuresSelf(p *falcon.RankProfile) bool {
	return positive(p.SelfMs) && p.SelfMs >= selfLeastMs
}

func windowSpanMs(p falcon.RankProfile) float64 {
	if p.Iterations < 1 {
		return 0
	}
	first := math.Inf(1)
	last := 0.0
	for _, c := range p.Calls {
		first = math.Min(first, c.StartMs)
		last = math.Max(last, c.StartMs+c.DurationMs)
	}
	if last <= first || math.IsInf(last, 0) {
		return 0
	}
	return (last - first) / float64(p.Iterations)
}

func positive(v float64) bool {
	return v > 0 && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// lowQuantile is the lower value at share q of v, 0 for none. It sorts v.
func lowQuantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))]
}
