package trace

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// Shape is the layout as the user knows it; zero fields are read from the trace.
type Shape struct{ TP, DP, PP int }

// Timeline is what every worker of a job did, step by step.
type Timeline struct {
	Layout  falcon.Layout
	Assumed string   // what was taken for granted about who is who; empty when the trace names it
	Workers []Worker // by rank, each once
	Steps   []int64  // the steps that events name; empty where they name none
	Dropped int      // communication calls beyond MaxCalls
}

// Worker is one worker's share of a timeline.
type Worker struct {
	Name      string
	Rank      falcon.Rank
	ComputeMs []float64 // by step, 0 = none; one mean where the trace names no steps
	Count     int       // steps that it covers
	Calls     []Call    // in order of time
}

// Call is one communication call of a worker.
type Call struct {
	Step       int64
	StartMs    float64
	DurationMs float64
	Op         falcon.Op
	Bytes      int64 // 0 = unknown
	Comm       uint64
	Dimension  falcon.Dimension
	Size       int         // members of the communicator, 0 = unknown
	From       falcon.Rank // of a receive, else -1
}

// timeline finds out who is who and lays the lanes together.
func (c *chrome) timeline(want Shape) (Timeline, error) {
	keys := slices.SortedFunc(maps.Keys(c.lanes), func(a, b laneKey) int {
		return cmp.Or(
			cmp.Compare(a.file, b.file),
			compareText(a.pid, b.pid),
			compareText(a.tid, b.tid),
		)
	})
	for _, k := range keys {
		c.completePlaces(k)
	}
	t := Timeline{Dropped: c.dropped}
	t.Assumed = c.guessPlaces(keys)
	var err error
	if t.Layout, err = c.findLayout(keys, want, &t); err != nil {
		return Timeline{}, err
	}
	byRank := map[falcon.Rank][]laneKey{}
	for _, k := range keys {
		if r, ok := c.lanes[k].place.rankOf(t.Layout); ok {
			byRank[r] = append(byRank[r], k)
		}
	}
	t.Steps = c.stepsOf(keys)
	if len(t.Steps)*len(byRank) > 4*MaxCells {
		return t, fmt.Errorf("%w: %d steps of %d workers; give fewer steps",
			ErrTooLarge, len(t.Steps), len(byRank))
	}
	for _, r := range slices.Sorted(maps.Keys(byRank)) {
		if w := c.joinLanes(&t, r, byRank[r]); w.Count > 0 {
			t.Workers = append(t.Workers, w)
		}
	}
	if len(t.Workers) == 0 {
		return t, malformed(
			0,
			"no forward, backward or kernel event is in it; record the device, or spans named forward and backward",
		)
	}
	return t, nil
}

// compareText orders numbers by value and other texts behind them.
func compareText(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil && x != y {
		return cmp.Compare(x, y)
	}
	if (errX == nil) != (errY == nil) {
		if errX == nil {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

var coordinateInName = regexp.MustCompile(
	`(?i)\b(dp|pp|tp|stage|rank|worker)[ _-]*(?:rank)?[ _:=#(\[-]*(\d{1,7})`,
)

// completePlaces fills in what the events' arguments left open: by the file's rank, or
// by the names of process and thread ("DP rank [3]", "PP rank 1, TP rank 0").
func (c *chrome) completePlaces(k laneKey) {
	p := &c.lanes[k].place
	if r, ok := c.ranks[k.file]; ok && *p == nowhere {
		p.rank = r
	}
	if r, ok := c.byName[k.file]; ok && *p == nowhere && len(c.byName) > 1 {
		p.rank = r // a single file may hold all ranks, whatever its name
	}
	if *p != nowhere {
		return
	}
	text := c.names[laneKey{k.file, k.pid, ""}] + " " + c.names[k]
	for _, m := range coordinateInName.FindAllStringSubmatch(text, 16) {
		n, err := strconv.Atoi(m[2])
		if err != nil || n >= MaxWorld {
			continue
		}
		switch strings.ToLower(m[1]) {
		case "dp":
			p.dp = n
		case "pp", "stage":
			p.pp = n
		case "tp":
			p.tp = n
		default:
			p.rank = n
		}
	}
}

// guessPlaces places lanes that nothing names, by pid and tid, and says so.
func (c *chrome) guessPlaces(keys []laneKey) string {
	var open []laneKey
	computing := map[laneKey][]laneKey{} // by process, its computing lanes
	for _, k := range keys {
		p := c.lanes[k].place
		if p.rank != unknown || (p.dp != unknown && p.pp != unknown) {
			continue
		}
		if p.pp != unknown && p.dp == unknown {
			c.lanes[k].place.dp = 0
			continue
		}
		open = append(open, k)
		if len(c.lanes[k].compute) > 0 {
			process := laneKey{k.file, k.pid, ""}
			computing[process] = append(computing[process], k)
		}
	}
	if len(open) == 0 {
		return ""
	}
	widest := 0
	for _, lanes := range computing {
		widest = max(widest, len(lanes))
	}
	if widest <= 1 || len(computing) == 1 && !c.placedDP(open) {
		return c.guessRanks(open, computing, widest)
	}
	processes := processOrder(open)
	for _, k := range open {
		process := laneKey{k.file, k.pid, ""}
		p := &c.lanes[k].place
		if p.dp == unknown {
			p.dp = processes[process]
		}
		p.pp = slices.Index(computing[process], k)
	}
	return "each process is taken for a replica and each thread of it for a stage, in the order of their ids"
}

func (c *chrome) placedDP(open []laneKey) bool {
	return slices.ContainsFunc(open, func(k laneKey) bool {
		return c.lanes[k].place.dp != unknown
	})
}

// guessRanks takes processes, or the threads of the only one, for ranks.
func (c *chrome) guessRanks(open []laneKey, computing map[laneKey][]laneKey, widest int) string {
	if widest > 1 {
		for _, k := range open {
			if i := slices.Index(computing[laneKey{k.file, k.pid, ""}], k); i >= 0 {
				c.lanes[k].place.rank = i
			}
		}
		return "each thread is taken for a rank, in the order of their ids"
	}
	processes := processOrder(open)
	for _, k := range open {
		p := &c.lanes[k].place
		if p.dp != unknown {
			p.pp = 0
			continue
		}
		p.rank = processes[laneKey{k.file, k.pid, ""}]
	}
	return "each process is taken for a rank, in the order of their ids"
}

func processOrder(lanes []laneKey) map[laneKey]int {
	out := map[laneKey]int{}
	for _, k := range lanes {
		process := laneKey{k.file, k.pid, ""}
		if _, known := out[process]; !known {
			out[process] = len(out)
		}
	}
	return out
}

// rankOf is the place's rank.
func (p place) rankOf(l falcon.Layout) (falcon.Rank, bool) {
	if p.dp == unknown || p.pp == unknown {
		return falcon.Rank(p.rank), p.rank >= 0 && p.rank < l.World()
	}
	at := falcon.Coord{TP: max(p.tp, 0), DP: p.dp, PP: p.pp}
	return l.RankOf(at), at.TP < l.TP && at.DP < l.DP && at.PP < l.PP && at.PP >= 0
}

// findLayout is as the user says, else by the places or the process groups.
func (c *chrome) findLayout(keys []laneKey, want Shape, t *Timeline) (falcon.Layout, error) {
	var most place
	world := c.world
	for _, k := range keys {
		p := c.lanes[k].place
		most = place{max(most.rank, p.rank), max(most.dp, p.dp), max(most.pp, p.pp), max(most.tp, p.tp)}
	}
	world = max(world, most.rank+1)
	l := falcon.Layout{
		TP: most.tp + 1,
		DP: most.dp + 1,
		PP: most.pp + 1,
	}
	if l.World() < world {
		l.TP, l.PP = max(c.groupSize("tensor", "tp"), 1), max(c.groupSize("pipeline", "pp"), 1)
		announced := l.TP*l.PP > 1
		if want.TP > 0 || want.PP > 0 || want.DP > 0 {
			l.TP = max(want.TP, 1)
			l.PP = max(want.PP, 1)
			announced = true
		}
		l.DP = (world + l.TP*l.PP - 1) / (l.TP * l.PP)
		if !announced && t.Assumed == "" {
			t.Assumed = "the trace does not contain the layout, so every rank is taken for a peer of every other; give --tp, --dp and --pp where that is wrong"
		}
	}
	set := func(to *int, v int) {
		if v > 0 {
			*to = v
		}
	}
	set(&l.TP, want.TP)
	set(&l.DP, want.DP)
	set(&l.PP, want.PP)
	if err := checkLayout(l); err != nil {
		return l, err
	}
	if l.World() < world {
		return l, malformed(0, "a layout of %d ranks can't hold rank %d; check --tp, --dp and --pp",
			l.World(), world-1)
	}
	return l, nil
}

// groupSize is the size of the process groups whose description has one of the
// words, 0 where there are none or they differ.
func (c *chrome) groupSize(words ...string) int {
	size := 0
	for _, g := range c.groups {
		if g.dimension() != falcon.Dimension(words[1]) || g.size == 0 {
			continue
		}
		if size != 0 && size != g.size {
			return 0
		}
		size = g.size
	}
	return size
}

// dimension reads a process group's description, as Megatron writes it.
func (g *commGroup) dimension() falcon.Dimension {
	for _, w := range []string{"_and_", "expert", "embedding", "partial"} {
		if strings.Contains(g.desc, w) {
			return "" // groups along several dimensions, or parts of one
		}
	}
	for _, d := range []struct {
		dim   falcon.Dimension
		words []string
	}{
		{falcon.DimTP, []string{"tensor", "tp"}},
		{falcon.DimPP, []string{"pipeline", "pp"}},
		{falcon.DimDP, []string{"data_parallel", "data-parallel", "dp", "fsdp"}},
	} {
		for _, w := range d.words {
			if g.desc == w ||
				len(w) > 2 && strings.Contains(g.desc, w) ||
				strings.HasPrefix(g.desc, w+"_") ||
				strings.HasPrefix(g.desc, "mesh_"+w) {
				return d.dim
			}
		}
	}
	return ""
}

// stepsOf are the steps that computing events name.
func (c *chrome) stepsOf(keys []laneKey) []int64 {
	steps := map[int64]bool{}
	for _, k := range keys {
		for s := range c.lanes[k].compute {
			if s != wholeTrace {
				steps[s] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(steps))
}

// joinLanes lays the lanes of one rank together.
func (c *chrome) joinLanes(t *Timeline, r falcon.Rank, lanes []laneKey) Worker {
	at := t.Layout.Coord(r)
	w := Worker{
		Rank:      r,
		Name:      fmt.Sprintf("dp%d/pp%d", at.DP, at.PP),
		ComputeMs: make([]float64, max(1, len(t.Steps))),
	}
	if t.Layout.TP > 1 {
		w.Name += fmt.Sprintf("/tp%d", at.TP)
	}
	whole, marked := 0.0, 0
	var annotated []commCall
	var calls []commCall
	for _, k := range lanes {
		l := c.lanes[k]
		for s, ms := range l.compute {
			if s == wholeTrace {
				whole += ms
				continue
			}
			i, _ := slices.BinarySearch(t.Steps, s)
			w.ComputeMs[i] += ms
		}
		marked = max(marked, len(c.steps[k.file]))
		calls = append(calls, l.calls...)
		annotated = append(annotated, l.annotated...)
	}
	if len(calls) == 0 {
		calls = annotated
	}
	for _, ms := range w.ComputeMs {
		if ms > 0 {
			w.Count++
		}
	}
	if len(t.Steps) == 0 && whole > 0 {
		w.Count = max(1, marked)
		w.ComputeMs[0] = whole / float64(w.Count)
	}
	w.Calls = t.nameComms(r, calls)
	return w
}

// nameComms names the communicator of each call and drops calls without one.
func (t *Timeline) nameComms(r falcon.Rank, in []commCall) []Call {
	slices.SortStableFunc(in, func(a, b commCall) int {
		return cmp.Compare(a.startMs, b.startMs)
	})
	at := t.Layout.Coord(r)
	known := map[*commGroup]falcon.Dimension{}
	var out []Call
	for _, c := range in {
		call := Call{
			Step:       c.step,
			StartMs:    c.startMs,
			DurationMs: c.ms,
			Op:         c.op,
			Bytes:      c.bytes,
			From:       unknown,
		}
		switch {
		case c.direction == dirReplicas:
			call.Dimension, call.Size = falcon.DimDP, t.Layout.DP
			call.Comm = impliedComm(falcon.DimDP, at.PP*t.Layout.TP+at.TP)
		case c.direction == dirFromPrev || c.direction == dirFromNext:
			to := (at.PP + t.Layout.PP - 1) % t.Layout.PP
			if c.direction == dirFromNext {
				to = (at.PP + 1) % t.Layout.PP
			}
			call.From = t.Layout.RankOf(falcon.Coord{TP: at.TP, DP: at.DP, PP: to})
			call.Op = falcon.OpRecv
			call.Dimension = falcon.DimPP
			call.Size = t.Layout.PP
			call.Comm = impliedComm(falcon.DimPP, at.DP*t.Layout.TP+at.TP)
		case c.group != nil &&
			c.op != falcon.OpSend &&
			c.op != falcon.OpRecv &&
			c.op != falcon.OpNone:
			call.Comm = uint64(c.group.id)
			call.Size = c.group.size
			call.Dimension = t.dimension(r, c.group, known)
		default:
			continue
		}
		if isDuration(call.DurationMs) {
			out = append(out, call)
		}
	}
	return out
}

// dimension is as the group is described, else as its members lie in the
// layout: a job of replicas only has the world for its data-parallel group.
func (t *Timeline) dimension(
	r falcon.Rank,
	g *commGroup,
	known map[*commGroup]falcon.Dimension,
) falcon.Dimension {
	if d, ok := known[g]; ok {
		return d
	}
	d := g.dimension()
	for _, dim := range []falcon.Dimension{falcon.DimDP, falcon.DimTP, falcon.DimPP} {
		if d != "" {
			break
		}
		peers := t.Layout.Peers(r, dim)
		if len(peers) > 1 &&
			slices.EqualFunc(peers, g.ranks, func(p falcon.Rank, q int) bool {
				return int(p) == q
			}) {
			d = dim
		}
	}
	known[g] = d
	return d
}

// impliedComm numbers a communicator that the layout implies, above those of events.
func impliedComm(d falcon.Dimension, i int) uint64 {
	base := uint64(1) << 32
	if d == falcon.DimPP {
		base = 1 << 33
	}
	return base + uint64(i)
}
