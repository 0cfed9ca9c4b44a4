package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// Bounds of a ledger. With them its encoding stays below 4 MiB where nodes have names
// of 30 characters.
const (
	EntriesMost  = 2048 // incidents kept one by one
	JobsMost     = 512  // jobs kept one by one
	CulpritsMost = 1024 // culprits of folded incidents
	NamedMost    = 8    // devices, and links, and ports, that one entry names
)

// Entry is one incident that is over, or one that lasts where EndNs is 0.
type Entry struct {
	Incident  string          `json:"incident"`
	Job       uint64          `json:"job,omitempty"`   // number of the Job, 0 = of none that was watched
	Epoch     uint64          `json:"epoch,omitempty"` // job epoch in which it was opened
	OnsetNs   int64           `json:"onset_unix_ns"`   // estimated from the onset's iteration
	EndNs     int64           `json:"end_unix_ns"`     // when its relief was seen
	HealthyMs float64         `json:"healthy_ms"`
	SlowMs    float64         `json:"slow_ms"`
	LostMs    float64         `json:"lost_ms"` // of the job's time, with what mitigation has saved
	Counted   bool            `json:"counted"` // LostMs was counted by iteration; else it is an estimate
	Cause     falcon.Cause    `json:"cause"`
	Also      []falcon.Cause  `json:"also,omitempty"`
	Devices   []falcon.Device `json:"devices,omitempty"`
	Links     []falcon.Link   `json:"links,omitempty"`
	NICs      []falcon.NIC    `json:"nics,omitempty"`
	// how many times it came between its onset and its end, 0 = once
	Times   int `json:"times,omitempty"`
	Unnamed int `json:"unnamed,omitempty"` // culprits beyond NamedMost
}

// TimesOf are an incident's onset, so many slow iterations before it was verified, at atNs, and
// its end, at endNs, 0 while it lasts.
func TimesOf(v falcon.Incident, atNs, endNs int64) (onsetNs, overNs int64) {
	late := float64(v.DetectedIteration-v.OnsetIteration) * v.SlowMs * 1e6
	if late > 0 && late < lateMost {
		atNs = max(0, atNs-int64(late))
	}
	if endNs != 0 {
		endNs = max(endNs, atNs) // the clock may have been set back
	}
	return atNs, endNs
}

// EntryOf is the entry of an incident that was verified at atNs and ended at endNs.
func EntryOf(v falcon.Incident, atNs, endNs int64) Entry {
	onsetNs, endNs := TimesOf(v, atNs, endNs)
	e := Entry{
		Incident:  v.ID,
		OnsetNs:   onsetNs,
		EndNs:     endNs,
		HealthyMs: v.HealthyMs,
		SlowMs:    v.SlowMs,
		Cause:     v.Verdict.Cause,
		Also:      slices.Clone(v.Verdict.Also),
	}
	if n := v.RelievedIteration - v.OnsetIteration; v.RelievedIteration != falcon.NoIteration && n > 0 {
		e.LostMs = float64(n) * max(0, v.SlowMs-v.HealthyMs)
	}
	e.Devices = firstOf(v.Verdict.Devices, &e.Unnamed)
	e.Links = firstOf(v.Verdict.Links, &e.Unnamed)
	e.NICs = firstOf(v.Verdict.NICs, &e.Unnamed)
	return e
}

// lateMost bounds how long before its verification an onset is put, in ns: iterations
// of another epoch may have other numbers.
const lateMost = 24 * 3600e9

func firstOf[T any](list []T, left *int) []T {
	n := min(len(list), NamedMost)
	*left += len(list) - n
	return slices.Clone(list[:n])
}

// Slowdown is how much longer an iteration took, 0 = unknown: 0.5 is half as long again.
func (e *Entry) Slowdown() float64 {
	if e.HealthyMs <= 0 || e.SlowMs <= 0 {
		return 0
	}
	return e.SlowMs/e.HealthyMs - 1
}

// Job is one job from its first iteration to its end, over restarts and recoveries.
type Job struct {
	Number     uint64         `json:"number"`
	Name       string         `json:"name"`
	Kind       Kind           `json:"kind,omitempty"`
	World      int            `json:"world"` // ranks
	FirstNs    int64          `json:"first_unix_ns"`
	LastNs     int64          `json:"last_unix_ns"`
	Over       bool           `json:"over,omitempty"`
	Iterations int64          `json:"iterations"`
	WatchedMs  float64        `json:"watched_ms"` // time in which iterations went on
	LostMs     float64        `json:"lost_ms"`    // by incidents that are over
	Incidents  int            `json:"incidents"`
	Causes     []falcon.Cause `json:"causes,omitempty"` // of them, sorted, each once
}

// Kind is what a job was run for; empty = training.
type Kind string

// The sampling jobs of sections 3.2 and 3.3.
const (
	ProbeA Kind = "a" // one node: computation
	ProbeB Kind = "b" // several nodes: communication
)

// JCTSlowdown is what the job lost, as a share of the time that it would have taken
// without; 0 = nothing or unknown.
func (j *Job) JCTSlowdown() float64 {
	if healthy := j.WatchedMs - j.LostMs; j.LostMs > 0 && healthy > 0 {
		return j.LostMs / healthy
	}
	return 0
}

// Watched is a stretch of a job that was watched.
type Watched struct {
	Name       string  `json:"name"`
	Kind       Kind    `json:"kind,omitempty"`
	World      int     `json:"world"`
	Iterations int64   `json:"iterations"`
	Ms         float64 `json:"ms"`
	Over       bool    `json:"over,omitempty"` // the job has ended as it should
}

// Count is what folded incidents have come to.
type Count struct {
	Incidents  int     `json:"incidents"`
	DurationMs float64 `json:"duration_ms"`
	LostMs     float64 `json:"lost_ms"`
}

// Tally is what is left of a culprit's folded incidents.
type Tally struct {
	Times   int    `json:"times"`
	FirstNs int64  `json:"first_unix_ns"`
	LastNs  int64  `json:"last_unix_ns"`
	Last    string `json:"last"` // incident
}

// JobCount is what folded jobs have come to.
type JobCount struct {
	Jobs     int     `json:"jobs"`
	Slowed   int     `json:"slowed"` // jobs whose slowdown is in the sum
	Slowdown float64 `json:"slowdown"`
}

// Ledger is the history. Its zero value is empty.
type Ledger struct {
	past   []Entry // by when they were over
	jobs   []Job   // by number
	newest uint64  // number of the newest job
	causes map[falcon.Cause]Count
	named  map[Name]Tally
	folded map[Column]JobCount
}

// Open is the number of the job that runs, 0 = none.
func (l *Ledger) Open() uint64 {
	if n := len(l.jobs); n > 0 && !l.jobs[n-1].Over {
		return l.jobs[n-1].Number
	}
	return 0
}

// Watch adds a stretch. The first one of a name, and the first after the end of a job,
// begins a job.
func (l *Ledger) Watch(atNs int64, w Watched) {
	j := l.job(l.Open())
	if j == nil || j.Name != w.Name || j.Kind != w.Kind {
		if j != nil {
			j.Over = true
		}
		if w.Over && w.Iterations == 0 {
			return
		}
		l.newest++
		l.jobs = append(l.jobs, Job{
			Number:  l.newest,
			Name:    w.Name,
			Kind:    w.Kind,
			FirstNs: atNs - int64(w.Ms*1e6),
		})
		l.foldJobs()
		j = &l.jobs[len(l.jobs)-1]
	}
	j.World = max(j.World, w.World)
	j.Iterations += w.Iterations
	j.WatchedMs += w.Ms
	j.LastNs = atNs
	j.Over = w.Over
}

func (l *Ledger) job(number uint64) *Job {
	i, found := slices.BinarySearchFunc(l.jobs, number, func(j Job, n uint64) int {
		return cmp.Compare(j.Number, n)
	})
	if !found {
		return nil
	}
	return &l.jobs[i]
}

// foldJobs turns the oldest jobs beyond the bound into counts.
func (l *Ledger) foldJobs() {
	for len(l.jobs) > JobsMost {
		j := &l.jobs[0]
		at := Column{j.Kind, j.Category()}
		n := l.folded[at]
		n.add(j)
		l.folded = with(l.folded, at, n)
		l.jobs = slices.Delete(l.jobs, 0, 1)
	}
}

func (n *JobCount) add(j *Job) {
	n.Jobs++
	if s := j.JCTSlowdown(); s > 0 {
		n.Slowed++
		n.Slowdown += s
	}
}

// Close adds an incident that is over. One that the ledger has already is left as it is.
func (l *Ledger) Close(e Entry) {
	if slices.ContainsFunc(l.past, func(o Entry) bool {
		return o.Incident == e.Incident
	}) {
		return
	}
	if j := l.job(e.Job); j != nil {
		j.Incidents++
		j.LostMs += e.LostMs
		for _, c := range append([]falcon.Cause{e.Cause}, e.Also...) {
			if i, found := slices.BinarySearch(j.Causes, c); !found {
				j.Causes = slices.Insert(j.Causes, i, c)
			}
		}
	}
	l.past = append(l.past, e)
	for len(l.past) > EntriesMost {
		l.foldEntry(&l.past[0])
		l.past = slices.Delete(l.past, 0, 1)
	}
}

// Reopen takes an incident out that is back.
func (l *Ledger) Reopen(incident string) {
	i := slices.IndexFunc(l.past, func(e Entry) bool { return e.Incident == incident })
	if i < 0 {
		return
	}
	if j := l.job(l.past[i].Job); j != nil {
		j.Incidents--
		j.LostMs -= l.past[i].LostMs
	}
	l.past = slices.Delete(l.past, i, i+1)
}

// Has reports whether an incident is kept as an entry.
func (l *Ledger) Has(incident string) bool {
	return slices.ContainsFunc(l.past, func(e Entry) bool { return e.Incident == incident })
}

// SetLost replaces the estimate of what an incident has cost by what was counted.
func (l *Ledger) SetLost(incident string, ms float64) {
	for i := len(l.past) - 1; i >= 0; i-- {
		e := &l.past[i]
		if e.Incident != incident {
			continue
		}
		if j := l.job(e.Job); j != nil {
			j.LostMs += ms - e.LostMs
		}
		e.LostMs, e.Counted = ms, true
		return
	}
}

func (l *Ledger) foldEntry(e *Entry) {
	n := l.causes[e.Cause]
	n.add(e)
	l.causes = with(l.causes, e.Cause, n)
	for _, k := range namesOf(e) {
		t := l.named[k]
		t.add(e)
		l.named = with(l.named, k, t)
	}
	if len(l.named) > CulpritsMost {
		l.forgetCulprits()
	}
}

func (n *Count) add(e *Entry) {
	n.Incidents++
	n.DurationMs += float64(e.EndNs-e.OnsetNs) / 1e6
	n.LostMs += e.LostMs
}

func (t *Tally) add(e *Entry) {
	if t.Times == 0 || e.OnsetNs < t.FirstNs {
		t.FirstNs = e.OnsetNs
	}
	if t.Times == 0 || e.OnsetNs >= t.LastNs {
		t.LastNs, t.Last = e.OnsetNs, e.Incident
	}
	t.Times++
}

// forgetCulprits forgets a quarter of the folded culprits: those named least often, then
// longest ago.
func (l *Ledger) forgetCulprits() {
	list := slices.SortedFunc(maps.Keys(l.named), func(a, b Name) int {
		x, y := l.named[a], l.named[b]
		return cmp.Or(
			x.Times-y.Times,
			cmp.Compare(x.LastNs, y.LastNs),
			compareNames(a, b),
		)
	})
	for _, k := range list[:len(list)-CulpritsMost*3/4] {
		delete(l.named, k)
	}
}

func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[k] = v
	return m
}
