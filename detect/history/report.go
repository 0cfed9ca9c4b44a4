package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
)

// HalfLife is that of a culprit's score where the query names none.
const HalfLife = 7 * 24 * time.Hour

// Name is a culprit; one field is set. GPUs and ports are known by their node and
// number, links by their nodes: an exchanged part has the history of its place.
type Name struct {
	Device falcon.Device `json:"device,omitempty"`
	Link   falcon.Link   `json:"link,omitzero"`
	NIC    falcon.NIC    `json:"nic,omitempty"`
}

func (n Name) String() string {
	if n.Link != (falcon.Link{}) {
		return n.Link.String()
	}
	return string(n.Device) + string(n.NIC)
}

func compareNames(a, b Name) int {
	return cmp.Or(
		cmp.Compare(a.Device, b.Device),
		strings.Compare(string(a.NIC), string(b.NIC)),
		cmp.Compare(a.Link.A, b.Link.A),
		cmp.Compare(a.Link.B, b.Link.B),
	)
}

// namesOf are an entry's culprits, each once.
func namesOf(e *Entry) []Name {
	var out []Name
	add := func(n Name) {
		if n != (Name{}) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for _, d := range e.Devices {
		add(Name{Device: d})
	}
	for _, x := range e.Links {
		add(Name{Link: x})
	}
	for _, x := range e.NICs {
		add(Name{NIC: x})
	}
	return out
}

// Category is a row of table 1.
type Category string

// The rows, in the order of the paper; Other is what it has no row for.
const (
	None     Category = "no fail-slow"
	CPU      Category = "CPU contention"
	GPU      Category = "GPU degradation"
	Network  Category = "network congestion"
	Multiple Category = "multiple issues"
	Other    Category = "other"
)

// Categories are all rows.
var Categories = []Category{None, CPU, GPU, Network, Multiple, Other}

// Column is one cell of table 1: a kind of job and a category.
type Column struct {
	Kind     Kind     `json:"kind"`
	Category Category `json:"category"`
}

// Category is the row of a job: causes that are no fault of hardware, and unknown
// ones, do not make several issues of one.
func (j *Job) Category() Category {
	if j.Incidents == 0 {
		return None
	}
	rows := map[falcon.Cause]Category{
		falcon.CauseCPU:     CPU,
		falcon.CauseGPU:     GPU,
		falcon.CauseNetwork: Network,
	}
	out := Other
	for _, c := range j.Causes {
		switch row, known := rows[c]; {
		case !known:
		case out != Other:
			return Multiple
		default:
			out = row
		}
	}
	return out
}

// Query says what of a history is reported.
type Query struct {
	NowNs    int64
	SinceNs  int64         // onsets from here on; what is folded is left out then. 0 = all
	HalfLife time.Duration // of scores; 0 = HalfLife
	Lasting  []Entry       // incidents that are not over: they count for culprits alone
}

// Report characterizes a history.
type Report struct {
	Causes    []CauseRow // most incidents first
	Table     []TableRow // rows of table 1 by kind of job; nothing where a kind has no jobs
	Durations Spread     // seconds, of the incidents that are kept
	Slowdowns Spread     // shares, of the incidents that are kept
	Jobs      []Job      // newest first
	Culprits  []Culprit  // highest score first
	Past      []Entry    // newest first
	Folded    int        // incidents that are in Causes and Culprits alone
}

// CauseRow is what one cause has come to.
type CauseRow struct {
	Cause      falcon.Cause
	Share      float64 // of all incidents
	Count              // with the sum of durations
	MeanMs     float64 // duration
	MeanLostMs float64
}

// TableRow is one kind of job in table 1.
type TableRow struct {
	Kind     Kind
	Jobs     map[Category]int
	Total    int
	Slowed   int     // jobs whose slowdown is known
	Slowdown float64 // mean JCT slowdown of them
}

// Spread are the quantiles of a distribution.
type Spread struct {
	N         int
	Mean      float64
	Quantiles []float64 // empirical, at 0, 5, … 100 %; empty without values
}

// Quantiles is how many quantiles a spread has.
const Quantiles = 21

// Culprit is what is known of one GPU, link or port.
type Culprit struct {
	Name
	Times   int     // incidents that named it
	Jobs    int     // among those kept, different jobs
	Score   float64 // each incident counts 1, halved with every half-life since its onset
	FirstNs int64   // onset
	LastNs  int64
	Last    string // newest incident
	Lasts   bool   // that incident is not over
	Causes  []falcon.Cause
}

// Report characterizes the ledger.
func (l *Ledger) Report(q Query) Report {
	r := Report{Past: l.since(q.SinceNs)}
	if q.SinceNs == 0 {
		for _, n := range l.causes {
			r.Folded += n.Incidents
		}
	}
	r.Causes = l.causeRows(&r)
	r.Durations = spreadOf(r.Past, func(e *Entry) float64 {
		return float64(e.EndNs-e.OnsetNs) / 1e9
	})
	r.Slowdowns = spreadOf(r.Past, (*Entry).Slowdown)
	for i := len(l.jobs) - 1; i >= 0; i-- {
		if j := l.jobs[i]; j.LastNs >= q.SinceNs {
			r.Jobs = append(r.Jobs, j)
		}
	}
	r.Table = l.table(r.Jobs, q.SinceNs == 0)
	r.Culprits = l.culprits(r.Past, q)
	slices.Reverse(r.Past)
	return r
}

// since are the entries from an onset on, in the ledger's order.
func (l *Ledger) since(ns int64) []Entry {
	return slices.DeleteFunc(slices.Clone(l.past), func(e Entry) bool { return e.OnsetNs < ns })
}

func (l *Ledger) causeRows(r *Report) []CauseRow {
	all := map[falcon.Cause]Count{}
	total := r.Folded + len(r.Past)
	if r.Folded > 0 {
		for c, n := range l.causes {
			all[c] = n
		}
	}
	for i := range r.Past {
		n := all[r.Past[i].Cause]
		n.add(&r.Past[i])
		all[r.Past[i].Cause] = n
	}
	var out []CauseRow
	for c, n := range all {
		of := float64(n.Incidents)
		out = append(out, CauseRow{
			Cause:      c,
			Count:      n,
			Share:      of / float64(total),
			MeanMs:     n.DurationMs / of,
			MeanLostMs: n.LostMs / of,
		})
	}
	slices.SortFunc(out, func(a, b CauseRow) int {
		return cmp.Or(b.Incidents-a.Incidents, cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

func (l *Ledger) table(jobs []Job, folded bool) []TableRow {
	cells := map[Column]JobCount{}
	if folded {
		for at, n := range l.folded {
			cells[at] = n
		}
	}
	for i := range jobs {
		at := Column{jobs[i].Kind, jobs[i].Category()}
		n := cells[at]
		n.add(&jobs[i])
		cells[at] = n
	}
	var out []TableRow
	for _, kind := range []Kind{ProbeA, ProbeB, ""} {
		row := TableRow{Kind: kind, Jobs: map[Category]int{}}
		sum := 0.0
		for _, c := range Categories {
			n := cells[Column{kind, c}]
			row.Jobs[c] = n.Jobs
			row.Total += n.Jobs
			row.Slowed += n.Slowed
			sum += n.Slowdown
		}
		if row.Slowed > 0 {
			row.Slowdown = sum / float64(row.Slowed)
		}
		if row.Total > 0 {
			out = append(out, row)
		}
	}
	return out
}

// spreadOf leaves out what is not positive: it is not known.
func spreadOf(list []Entry, of func(*Entry) float64) Spread {
	var values []float64
	for i := range list {
		if v := of(&list[i]); v > 0 && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	out := Spread{N: len(values), Mean: stat.Mean(values, nil)}
	for i := range Quantiles {
		// The margin is far below a step of the distribution: 0.6 of 5 values is the third
		// of them however it is rounded.
		out.Quantiles = append(out.Quantiles, stat.Quantile(
			max(0, float64(i)/(Quantiles-1)-1e-9),
			stat.Empirical,
			values,
			nil,
		))
	}
	return out
}

// Closed is how many incidents the ledger has taken.
func (l *Ledger) Closed() int {
	n := len(l.past)
	for _, c := range l.causes {
		n += c.Incidents
	}
	return n
}

// Culprits are a report's alone.
func (l *Ledger) Culprits(q Query) []Culprit {
	return l.culprits(l.since(q.SinceNs), q)
}

// culprits are those of the entries, of the folded ones where all are asked for, and of
// what lasts.
func (l *Ledger) culprits(past []Entry, q Query) []Culprit {
	found := map[Name]*Culprit{}
	jobs := map[Name]map[uint64]bool{}
	if q.SinceNs == 0 {
		for k, t := range l.named {
			found[k] = &Culprit{
				Name:    k,
				Times:   t.Times,
				FirstNs: t.FirstNs,
				LastNs:  t.LastNs,
				Last:    t.Last,
			}
			jobs[k] = map[uint64]bool{}
		}
	}
	half := float64(cmp.Or(max(0, q.HalfLife), HalfLife))
	for _, list := range [][]Entry{past, q.Lasting} {
		for i := range list {
			for _, k := range namesOf(&list[i]) {
				if found[k] == nil {
					found[k], jobs[k] = &Culprit{Name: k, FirstNs: list[i].OnsetNs}, map[uint64]bool{}
				}
				found[k].count(&list[i], q.NowNs, half)
				jobs[k][list[i].Job] = true
			}
		}
	}
	out := make([]Culprit, 0, len(found))
	for k, c := range found {
		c.Jobs = len(jobs[k])
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Culprit) int {
		return cmp.Or(
			cmp.Compare(b.Score, a.Score),
			b.Times-a.Times,
			cmp.Compare(b.LastNs, a.LastNs),
			compareNames(a.Name, b.Name),
		)
	})
	return out
}

func (c *Culprit) count(e *Entry, nowNs int64, half float64) {
	t := Tally{
		Times:   c.Times,
		FirstNs: c.FirstNs,
		LastNs:  c.LastNs,
		Last:    c.Last,
	}
	t.add(e)
	if t.Last == e.Incident {
		c.Lasts = e.EndNs == 0
	}
	c.Times = t.Times
	c.FirstNs = t.FirstNs
	c.LastNs = t.LastNs
	c.Last = t.Last
	c.Score += math.Exp2(-float64(max(0, nowNs-e.OnsetNs)) / half)
	if !slices.Contains(c.Causes, e.Cause) {
		c.Causes = append(c.Causes, e.Cause)
	}
}
