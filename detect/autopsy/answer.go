package autopsy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kinds of answers.
const (
	KindHang    = "hang"
	KindSlow    = "slow"
	KindFailed  = "failed"
	KindHealthy = "healthy"
	KindUnknown = "unknown"
)

// Answer is what happened.
type Answer struct {
	Kind       string    `json:"kind"`
	Summary    string    `json:"summary"`
	Ranks      []int     `json:"ranks"`
	Hosts      []string  `json:"hosts"`
	Devices    []string  `json:"devices"`
	Onset      *Onset    `json:"onset,omitempty"`
	Slowdown   float64   `json:"slowdown,omitempty"` // 1.1 = 10 % longer
	CostS      float64   `json:"cost_s,omitempty"`
	Confidence float64   `json:"confidence"`
	Findings   []Finding `json:"findings"`
	Next       []string  `json:"next"`
	Inputs     []Read    `json:"inputs"`
}

// Onset is since when.
type Onset struct {
	Index     int        `json:"index"` // of the series' points, from 0
	Iteration *int64     `json:"iteration,omitempty"`
	Time      *time.Time `json:"time,omitempty"`
}

// Finding is one piece of evidence.
type Finding struct {
	Kind    string     `json:"kind"`
	Against bool       `json:"against,omitempty"`
	Rank    *int       `json:"rank,omitempty"`
	Host    string     `json:"host,omitempty"`
	Device  string     `json:"device,omitempty"`
	Time    *time.Time `json:"time,omitempty"`
	File    string     `json:"file,omitempty"`
	Line    int        `json:"line,omitempty"`
	Text    string     `json:"text"`
	Quote   string     `json:"quote,omitempty"` // the line itself
}

// Read is an input as the answer lists it.
type Read struct {
	Path  string   `json:"path"`
	Kind  string   `json:"kind"`
	Used  bool     `json:"used"`
	Lines int      `json:"lines,omitempty"`
	Why   string   `json:"why,omitempty"`
	First string   `json:"first_line,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// opinion is what one judge found; the best of all is the answer, the others are its evidence.
type opinion struct {
	kind       string
	fault      string // the kind of the fault that it takes for the cause
	rank       int    // of causes: the lower comes first
	confidence float64
	who        []Who
	onset      *Onset
	slowdown   float64
	costS      float64
	summary    string
	findings   []Finding
	next       []string
	judged     bool // there was something to judge: nothing found means healthy
}

// Order of opinions: a cause comes before what follows from it.
const (
	orderHardware = iota
	orderFailed
	orderHang
	orderSlow
	orderLost // what others may have caused
	orderNone
)

// Judge answers from the facts.
func Judge(f *Facts) Answer {
	series := measure(f.Series)
	opinions := []opinion{
		judgeFaults(f),
		judgeCalls(f),
		judgeStacks(f),
		judgeSilence(f),
		judgeIdle(f),
		judgeTests(f),
		judgeWaits(f),
	}
	opinions = append(opinions, judgeMembers(f)...)
	opinions = append(opinions, judgeSeries(series))
	for _, v := range f.Verdicts {
		opinions = append(opinions, ofVerdict(v))
	}
	judged := slices.ContainsFunc(opinions, func(o opinion) bool { return o.judged })
	var beside []Finding // of judges that decide nothing
	opinions = slices.DeleteFunc(opinions, func(o opinion) bool {
		if o.kind == "" {
			beside = append(beside, o.findings...)
		}
		return o.kind == ""
	})
	slices.SortStableFunc(opinions, func(a, b opinion) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), -cmp.Compare(a.confidence, b.confidence))
	})
	out := Answer{
		Kind:     KindUnknown,
		Ranks:    []int{},
		Hosts:    []string{},
		Devices:  []string{},
		Findings: []Finding{},
		Next:     []string{},
	}
	switch {
	case len(opinions) > 0:
		out.take(opinions)
	case judged:
		out.healthy(series)
	default:
		out.unknown(series)
	}
	out.Findings = append(out.Findings, beside...)
	out.list(f)
	return out
}

// take makes an answer of the first opinion; those of its kind add whom it does not name.
func (a *Answer) take(opinions []opinion) {
	best := opinions[0]
	a.Kind = best.kind
	a.Confidence = best.confidence
	a.Summary = best.summary
	a.Onset = best.onset
	a.Slowdown = best.slowdown
	a.CostS = best.costS
	a.name(best.who)
	for _, o := range opinions {
		a.Findings = append(a.Findings, o.findings...)
		a.Next = append(a.Next, o.next...)
		if o.kind != best.kind {
			continue
		}
		if best.kind != KindHang || len(best.who) == 0 { // in a hang who is behind follows from who is gone
			a.fill(o.who)
		}
		if a.Onset == nil {
			a.Onset, a.CostS = o.onset, o.costS
		}
		if a.Slowdown == 0 {
			a.Slowdown = o.slowdown
		}
		if o.summary != best.summary {
			a.Summary += "; " + o.summary
		}
		a.Confidence = max(a.Confidence, o.confidence)
	}
	a.Next = unique(a.Next)
}

func (a *Answer) name(who []Who) {
	for _, w := range who {
		if w.Rank >= 0 && !slices.Contains(a.Ranks, w.Rank) {
			a.Ranks = append(a.Ranks, w.Rank)
		}
		if w.Host != "" && !slices.Contains(a.Hosts, w.Host) {
			a.Hosts = append(a.Hosts, w.Host)
		}
		if w.Device != "" && !slices.Contains(a.Devices, w.Device) {
			a.Devices = append(a.Devices, w.Device)
		}
	}
	slices.Sort(a.Ranks)
	slices.Sort(a.Hosts)
	slices.Sort(a.Devices)
}

// fill names what no better opinion names: a rank beside a device is the same fault seen twice.
func (a *Answer) fill(who []Who) {
	var more Answer
	more.name(who)
	if len(a.Ranks) == 0 {
		a.Ranks = append(a.Ranks, more.Ranks...)
	}
	if len(a.Hosts) == 0 {
		a.Hosts = append(a.Hosts, more.Hosts...)
	}
	if len(a.Devices) == 0 {
		a.Devices = append(a.Devices, more.Devices...)
	}
}

func (a *Answer) healthy(series []measured) {
	a.Kind, a.Confidence = KindHealthy, healthyConfidence
	a.Summary = "no fault is found in what was given"
	a.Findings = append(a.Findings, power(series)...)
}

func (a *Answer) unknown(series []measured) {
	a.Summary = "it can't be determined: nothing that was given says how long iterations take, what ranks wait for, or what failed"
	a.Next = []string{
		"give a training log with times of iterations, or the output of the ranks",
		"of a job that stands: stacks of all ranks (py-spy dump), NCCL's flight recorder, ncclras -f json",
	}
	a.Findings = append(a.Findings, power(series)...)
}

const (
	healthyConfidence = 0.5 // what was given may not be what shows it
	listed            = 64  // findings of an answer
)

func (a *Answer) list(f *Facts) {
	if len(a.Findings) > listed {
		a.Findings = a.Findings[:listed]
	}
	for _, in := range f.Inputs {
		a.Inputs = append(a.Inputs, Read{in.Path, in.Kind, in.Used, in.Lines, in.Why, in.First, in.Notes})
	}
}

func unique(texts []string) []string {
	var out []string
	for _, t := range texts {
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// finding makes evidence of a line.
func finding(kind string, who Who, at time.Time, s Source, text string) Finding {
	x := Finding{
		Kind:   kind,
		Host:   who.Host,
		Device: who.Device,
		File:   s.File,
		Line:   s.Line,
		Text:   text,
		Quote:  s.Text,
	}
	if who.Rank >= 0 {
		x.Rank = &who.Rank
	}
	if !at.IsZero() {
		x.Time = &at
	}
	return x
}

// names reads "rank 3 on node1", "ranks 3, 5 and 7", "device mlx5_10".
func names(who []Who) string {
	var ranks, others []string
	for _, w := range who {
		switch {
		case w.Rank >= 0 && w.Host != "" && len(who) == 1:
			return fmt.Sprintf("rank %d on %s", w.Rank, w.Host)
		case w.Rank >= 0:
			ranks = append(ranks, fmt.Sprint(w.Rank))
		case w.Device != "" && w.Host != "":
			others = append(others, "device "+w.Device+" on "+w.Host)
		case w.Device != "":
			others = append(others, "device "+w.Device)
		case w.Host != "":
			others = append(others, "node "+w.Host)
		}
	}
	if len(ranks) == 1 {
		others = append(others, "rank "+ranks[0])
	} else if len(ranks) > 1 {
		others = append(others, "ranks "+few(ranks))
	}
	return few(others)
}

const fewMost = 8

func few(list []string) string {
	if len(list) > fewMost {
		return strings.Join(list[:fewMost], ", ") + fmt.Sprintf(" and %d more",
			len(list)-fewMost)
	}
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// ofVerdict takes what the judge of traces and dumps says.
func ofVerdict(v Verdict) opinion {
	o := opinion{
		kind:       v.Kind,
		confidence: v.Confidence,
		judged:     v.Kind != KindUnknown,
	}
	switch v.Kind {
	case KindHang:
		o.rank = orderHang
	case KindSlow:
		o.rank = orderSlow
	default:
		o.kind = ""
	}
	for _, r := range v.Ranks {
		o.who = append(o.who, Who{Rank: r})
	}
	for _, t := range v.Text {
		o.findings = append(o.findings, finding("dump", Nobody, time.Time{}, v.Source, t))
	}
	for _, t := range v.Against {
		x := finding("dump", Nobody, time.Time{}, v.Source, t)
		x.Against = true
		o.findings = append(o.findings, x)
	}
	o.summary = "ranks wait for others in a collective"
	if len(o.who) > 0 {
		o.summary = names(o.who) + ": the records of calls show it"
	}
	return o
}
