package autopsy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

const (
	peersLeast    = 3    // members that can be compared
	slowRatio     = 1.15 // of a member to the median of the others
	waitRatio     = 1.6  // the same, of times in which the last to arrive waits least
	spreads       = 6    // usual differences of members that one must have
	holds         = 0.7  // share of the newest steps in which it must be so
	newestShare   = 3    // the newest third of the steps counts
	sureOfPeers   = 0.8
	sureOfWaits   = 0.65
	sureOfReport  = 0.8
	sureOfGone    = 0.9
	sureOfExtreme = 0.65
	extremeLeast  = 1.05 // of the largest value to the smallest
	activeLeast   = 0.1  // share of a member's rows in which a reason is active
)

// judgeMembers compares members with their peers, and hears what reports name.
func judgeMembers(f *Facts) []opinion {
	var strong []Named
	byMetric := map[string][]Named{}
	for _, n := range f.Named {
		if n.Strong {
			strong = append(strong, n)
		} else {
			byMetric[n.Metric] = append(byMetric[n.Metric], n)
		}
	}
	out := []opinion{judgeSamples(f.Samples), judgeStrong(strong)}
	for _, name := range slices.Sorted(maps.Keys(byMetric)) {
		out = append(out, judgeExtremes(byMetric[name]))
	}
	return out
}

// metric is one value of all members.
type metric struct {
	name      string
	direction Direction
	members   []string
	who       map[string]Who
	values    map[string]map[int64]Sample
	steps     []int64
	share     float64 // of the time of all metrics of its kind
}

func metricsOf(samples []Sample) []*metric {
	byName := map[string]*metric{}
	var out []*metric
	for _, s := range samples {
		if !(s.Value > 0) || s.Direction == IdleStands {
			continue
		}
		name := s.By + "\x00" + s.Metric
		m := byName[name]
		if m == nil {
			m = &metric{
				name:      s.Metric,
				direction: s.Direction,
				who:       map[string]Who{},
				values:    map[string]map[int64]Sample{},
			}
			byName[name] = m
			out = append(out, m)
		}
		if m.values[s.Key] == nil {
			m.values[s.Key] = map[int64]Sample{}
			m.members = append(m.members, s.Key)
			m.who[s.Key] = s.Who
		}
		m.values[s.Key][s.Step] = s
	}
	total := map[Direction]float64{}
	for _, m := range out {
		m.share = m.typical()
		total[m.direction] += m.share
	}
	for _, m := range out {
		m.share /= total[m.direction]
		steps := map[int64]bool{}
		for _, v := range m.values {
			for s := range v {
				steps[s] = true
			}
		}
		m.steps = slices.Sorted(maps.Keys(steps))
	}
	return out
}

// typical is the median of all its values.
func (m *metric) typical() float64 {
	var all []float64
	for _, v := range m.values {
		for _, s := range v {
			all = append(all, s.Value)
		}
	}
	return median(all)
}

// suspect is a member that differs from its peers.
type suspect struct {
	key    string
	ratio  float64
	onset  int // index of a step
	sample Sample
	metric *metric
}

func judgeSamples(samples []Sample) opinion {
	var found []suspect
	judged := false
	for _, m := range metricsOf(samples) {
		if len(m.members) < peersLeast {
			continue
		}
		judged = true
		found = append(found, m.suspects()...)
	}
	if len(found) == 0 {
		return opinion{judged: judged}
	}
	weight := map[string]float64{}
	for _, s := range found {
		weight[s.key] += s.weight()
	}
	best := slices.MaxFunc(found, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(weight[a.key], weight[b.key]), cmp.Compare(a.weight(), b.weight()))
	})
	return best.opinion(found)
}

// weight is how much a suspicion counts: by its excess, less where it follows from waiting, and by
// the time it is about.
func (s suspect) weight() float64 {
	w := math.Log(s.ratio)
	if s.metric.direction == LeastWaits {
		w *= 0.3 * s.metric.share
	}
	return w
}

// opinion is that of the best suspect, with others that are as bad by the same metric.
func (s suspect) opinion(found []suspect) opinion {
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfPeers,
		judged:     true,
		slowdown:   s.ratio,
	}
	if s.metric.direction == LeastWaits {
		o.confidence, o.slowdown = sureOfWaits, 0
	}
	for _, x := range found {
		if x.metric != s.metric || math.Log(x.ratio) < math.Log(s.ratio)/2 {
			continue
		}
		who := x.metric.who[x.key]
		o.who = append(o.who, who)
		o.findings = append(o.findings, finding("peers", who, zero, x.sample.Source, x.text()))
	}
	if len(o.who) > 1 {
		for i := range o.who {
			if o.who[i].Rank >= 0 {
				o.who[i].Host = ""
			}
		}
	} else if o.who[0].Rank >= 0 || o.who[0].Device != "" {
		o.who[0].Host = "" // its node is in the finding: the member is to blame, not the node
	}
	o.summary = fmt.Sprintf("%s: %s", names(o.who), s.text())
	if at := s.metric.steps[s.onset]; s.onset > 0 {
		o.onset = &Onset{Index: s.onset, Iteration: &at}
	}
	o.next = []string{
		"test " + names(o.who) +
			" by itself (a GEMM test, its clocks, its links), and its node's other members",
	}
	return o
}

func (s suspect) text() string {
	switch s.metric.direction {
	case LessIsSlow:
		return fmt.Sprintf("%s is %.3g, %.0f %% of that of its peers",
			s.metric.name, s.sample.Value, 100/s.ratio)
	case LeastWaits:
		return fmt.Sprintf("%s is %.3g, 1/%.2f of that of its peers: who arrives last waits least",
			s.metric.name, s.sample.Value, s.ratio)
	}
	return fmt.Sprintf("%s is %.4g, %.2f times that of its peers", s.metric.name, s.sample.Value, s.ratio)
}

// suspects are the members that differ from the median of the others in most of the newest steps.
func (m *metric) suspects() []suspect {
	least := slowRatio
	if m.direction == LeastWaits {
		least = waitRatio
	}
	from := len(m.steps) - max(1, len(m.steps)/newestShare)
	ratios := m.ratios()
	spread := m.spread(ratios, from)
	var out []suspect
	for _, key := range m.members {
		series := ratios[key]
		newest := known(series[from:])
		if len(newest) == 0 {
			continue
		}
		over := 0
		for _, r := range newest {
			if r >= 1+(least-1)/2 {
				over++
			}
		}
		ratio := median(newest)
		if ratio < least ||
			float64(over) < holds*float64(len(newest)) ||
			math.Log(ratio) < spreads*spread {
			continue
		}
		out = append(out, suspect{key, ratio, onsetOf(series, ratio), m.newest(key), m})
	}
	if 2*len(out) >= len(m.members) {
		return nil
	}
	return out
}

func known(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}

// ratios are those of each member to the median of the others, by step; above 1 is bad.
func (m *metric) ratios() map[string][]float64 {
	out := map[string][]float64{}
	for _, key := range m.members {
		out[key] = make([]float64, len(m.steps))
	}
	var sorted []float64
	for i, step := range m.steps {
		sorted = sorted[:0]
		for _, key := range m.members {
			out[key][i] = math.NaN()
			if s, ok := m.values[key][step]; ok {
				sorted = append(sorted, s.Value)
			}
		}
		slices.Sort(sorted)
		if len(sorted) < peersLeast {
			continue
		}
		for _, key := range m.members {
			mine, ok := m.values[key][step]
			if !ok {
				continue
			}
			r := mine.Value / medianWithout(sorted, mine.Value)
			if m.direction != MoreIsSlow {
				r = 1 / r
			}
			out[key][i] = r
		}
	}
	return out
}

// medianWithout is the median of sorted values without one of them.
func medianWithout(sorted []float64, value float64) float64 {
	at, _ := slices.BinarySearch(sorted, value)
	get := func(i int) float64 {
		if i >= at {
			i++
		}
		return sorted[i]
	}
	n := len(sorted) - 1
	if n%2 == 1 {
		return get(n / 2)
	}
	return (get(n/2-1) + get(n/2)) / 2
}

// spread is by how much members usually differ.
func (m *metric) spread(ratios map[string][]float64, from int) float64 {
	var logs []float64
	for _, key := range m.members {
		if newest := known(ratios[key][from:]); len(newest) > 0 {
			logs = append(logs, math.Abs(math.Log(median(newest))))
		}
	}
	return median(logs)
}

// onsetOf is the first step from which on a member differs.
func onsetOf(series []float64, ratio float64) int {
	at := len(series)
	for i := len(series) - 1; i >= 0; i-- {
		if !math.IsNaN(series[i]) && series[i] < 1+(ratio-1)/2 {
			break
		}
		at = i
	}
	return min(at, len(series)-1)
}

func (m *metric) newest(key string) Sample {
	for _, step := range slices.Backward(m.steps) {
		if s, ok := m.values[key][step]; ok {
			return s
		}
	}
	return Sample{}
}

// judgeStrong hears what reports name by their own judgement.
func judgeStrong(all []Named) opinion {
	if len(all) == 0 {
		return opinion{}
	}
	count := map[Who]int{}
	first := map[Who]Named{}
	most := 0
	for _, n := range all {
		if count[n.Who]++; count[n.Who] == 1 {
			first[n.Who] = n
		}
		most = max(most, count[n.Who])
	}
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfReport,
		judged:     true,
	}
	if slices.ContainsFunc(all, func(n Named) bool { return n.Gone }) {
		o.confidence = sureOfGone
		all = slices.DeleteFunc(slices.Clone(all), func(n Named) bool { return !n.Gone })
	}
	if slices.ContainsFunc(all, func(n Named) bool { return n.Kind == KindHang }) {
		o.kind, o.rank = KindHang, orderHang
		all = slices.DeleteFunc(slices.Clone(all), func(n Named) bool { return n.Kind != KindHang })
	}
	for _, n := range all {
		if first[n.Who].Source != n.Source ||
			float64(count[n.Who]) < max(float64(most)/2, activeLeast*float64(len(all)/len(count))) {
			continue
		}
		o.who = append(o.who, n.Who)
		o.findings = append(o.findings, finding(
			"report",
			n.Who,
			zero,
			n.Source,
			fmt.Sprintf("a report names it: %s (%d lines)", n.Metric, count[n.Who]),
		))
	}
	o.summary = names(o.who) + ": a report names it (" + all[0].Metric + ")"
	o.next = []string{
		"test " + names(o.who) + " by itself, and compare its clocks and temperature with its peers'",
	}
	return o
}

// judgeExtremes takes the rank that is the extreme of most of the newest reports.
func judgeExtremes(reports []Named) opinion {
	from := len(reports) - max(1, len(reports)/newestShare)
	newest := reports[from:]
	count := map[Who]int{}
	for _, n := range newest {
		count[n.Who]++
	}
	var who Who
	for w, n := range count {
		if n > count[who] || n == count[who] && w.Rank < who.Rank {
			who = w
		}
	}
	last := newest[len(newest)-1]
	if len(newest) < peersLeast ||
		float64(count[who]) < holds*float64(len(newest)) ||
		last.Other > 0 && ratioOf(last) < extremeLeast {
		return opinion{}
	}
	at := len(reports)
	for i := len(reports) - 1; i >= 0 && reports[i].Who == who; i-- {
		at = i
	}
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfExtreme,
		who:        []Who{who},
		judged:     true,
	}
	o.summary = fmt.Sprintf("%s is the slowest in %d of the newest %d reports (%s)",
		names(o.who), count[who], len(newest), last.Metric)
	o.findings = []Finding{finding("report", who, zero, reports[min(at, len(reports)-1)].Source, o.summary)}
	return o
}

func ratioOf(n Named) float64 {
	return max(n.Other/n.Value, n.Value/n.Other)
}
