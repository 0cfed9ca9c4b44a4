package report

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// History characterizes the incidents that are over, over the engine's jobs and days.
// Times are UTC; every string has been cleaned.
type History struct {
	At            string       `json:"at"`
	Since         string       `json:"since,omitempty"` // empty = all that is kept
	HalfLifeHours float64      `json:"half_life_hours"` // of scores
	Incidents     int          `json:"incidents"`
	Folded        int          `json:"folded"` // counted in causes and culprits alone
	Causes        []CauseCount `json:"causes"`
	FailStops     []FailStop   `json:"fail_stops"` // of the newest 128 recoveries
	// of the link tests of the newest 128 validations, steadiest first
	Paths      []PathRow      `json:"paths"`
	Table      []JobCauses    `json:"table"`
	DurationsS Spread         `json:"durations_s"`
	Slowdowns  Spread         `json:"slowdowns"` // shares
	Jobs       []PastJob      `json:"jobs"`      // newest first
	Culprits   []Culprit      `json:"culprits"`  // highest score first
	Past       []PastIncident `json:"past"`      // newest first
	LeftOut    int            `json:"left_out"`  // kept and not in past
}

// CauseCount is what one cause has come to.
type CauseCount struct {
	Cause     string  `json:"cause"`
	Incidents int     `json:"incidents"`
	Share     float64 `json:"share"`
	MeanS     float64 `json:"mean_s"` // duration
	LostS     float64 `json:"lost_s"` // of jobs' time
}

// PathRow is how steady one class of paths is: table 2 of the FALCON paper.
type PathRow struct {
	Class  string  `json:"class"`
	Bytes  int64   `json:"bytes"`
	Paths  int     `json:"paths"`
	Tests  int     `json:"tests"`
	MeanMs float64 `json:"mean_ms"`
	CoV    float64 `json:"cov"` // of all its times; 0 with fewer than two tests
	// the path whose own times vary most; empty = none was tested four times
	Worst    string  `json:"worst"`
	WorstCoV float64 `json:"worst_cov"` // of its times
}

// FailStop is what one kind of fail-stop fault has come to.
type FailStop struct {
	Kind      string  `json:"kind"` // "exit", "node", "frozen", "hang", "device"
	Faults    int     `json:"faults"`
	Share     float64 `json:"share"`
	Ranks     int     `json:"ranks"` // whose processes were lost
	Nodes     int     `json:"nodes"` // different ones
	Most      string  `json:"most"`  // the node with most of them
	MostTimes int     `json:"most_times"`
	Over      int     `json:"over"`   // recoveries that have ended
	Trains    int     `json:"trains"` // after which the job trained again
	DownS     float64 `json:"down_s"` // mean, from the first sign until it trained again
}

// JobCauses is a column of table 1 of the FALCON paper.
type JobCauses struct {
	Kind       string         `json:"kind"` // "", "a", "b"
	Jobs       int            `json:"jobs"`
	Categories []CategoryJobs `json:"categories"`
	Slowed     int            `json:"slowed"`       // jobs in the mean
	Slowdown   float64        `json:"jct_slowdown"` // mean share
}

// CategoryJobs is one cell of it.
type CategoryJobs struct {
	Category string `json:"category"`
	Jobs     int    `json:"jobs"`
}

// Spread is a distribution: its empirical quantiles at 0, 5, … 100 %.
type Spread struct {
	N         int       `json:"n"`
	Mean      float64   `json:"mean"`
	Quantiles []float64 `json:"quantiles"`
}

// At is the quantile for a share, 0 where there is none.
func (s Spread) At(share float64) float64 {
	if len(s.Quantiles) < 2 {
		return 0
	}
	last := len(s.Quantiles) - 1
	return s.Quantiles[max(0, min(last, int(share*float64(last)+0.5)))]
}

// PastJob is one job from its first iteration to its end.
type PastJob struct {
	Number     uint64  `json:"number"`
	Name       string  `json:"name"`
	Kind       string  `json:"kind,omitempty"`
	Ranks      int     `json:"ranks"`
	First      string  `json:"first"`
	Last       string  `json:"last"`
	Over       bool    `json:"over"`
	Iterations int64   `json:"iterations"`
	WatchedS   float64 `json:"watched_s"`
	LostS      float64 `json:"lost_s"`
	Incidents  int     `json:"incidents"`
	Category   string  `json:"category"`
	Slowdown   float64 `json:"jct_slowdown"`
}

// Culprit is a GPU, link or port and what it was named for.
type Culprit struct {
	Kind      string   `json:"kind"` // "gpu", "link", "nic"
	Name      string   `json:"name"`
	Times     int      `json:"times"`
	Jobs      int      `json:"jobs"`
	Score     float64  `json:"score"`
	FirstSeen string   `json:"first"`
	LastSeen  string   `json:"last"`
	Incident  string   `json:"incident"` // newest
	Lasts     bool     `json:"lasts"`    // which is not over
	Causes    []string `json:"causes"`
}

// PastIncident is one incident that is over.
type PastIncident struct {
	ID        string   `json:"id"`
	Job       uint64   `json:"job"` // number in jobs, 0 = none
	Epoch     uint64   `json:"epoch"`
	Onset     string   `json:"onset"`
	End       string   `json:"end"`
	DurationS float64  `json:"duration_s"`
	HealthyMs float64  `json:"healthy_ms"`
	SlowMs    float64  `json:"slow_ms"`
	LostS     float64  `json:"lost_s"`
	Counted   bool     `json:"counted"` // else lost_s is an estimate
	Cause     string   `json:"cause"`
	Also      []string `json:"also,omitempty"`
	Devices   []string `json:"devices"`
	Links     []string `json:"links"`
	NICs      []string `json:"nics"`
	Unnamed   int      `json:"unnamed,omitempty"` // further culprits
}

// Slowdown is the share by which iterations took longer, 0 = unknown.
func (v PastIncident) Slowdown() float64 {
	if v.HealthyMs <= 0 {
		return 0
	}
	return v.SlowMs/v.HealthyMs - 1
}

// HistoryOf makes the report of an engine's answer.
func HistoryOf(answer *falconv1.HistoryReply) History {
	r := received(answer)
	h := History{
		At:            stampOf(r.GetAtUnixNs()),
		HalfLifeHours: time.Duration(r.GetHalfLifeNs()).Hours(),
		Incidents:     int(r.GetIncidents()),
		Folded:        int(r.GetFolded()),
		Causes:        []CauseCount{},
		FailStops:     []FailStop{},
		Paths:         []PathRow{},
		Table:         []JobCauses{},
		Jobs:          []PastJob{},
		Culprits:      []Culprit{},
		Past:          []PastIncident{},
		DurationsS:    spreadOf(r.GetDurationsS()),
		Slowdowns:     spreadOf(r.GetSlowdowns()),
		LeftOut:       max(0, int(r.GetIncidents()-r.GetFolded())-len(r.GetPast())),
	}
	if r.GetSinceUnixNs() > 0 {
		h.Since = stampOf(r.GetSinceUnixNs())
	}
	for _, c := range r.GetCauses() {
		h.Causes = append(h.Causes, CauseCount{
			c.GetCause(),
			int(c.GetIncidents()),
			c.GetShare(),
			c.GetMeanMs() / 1e3,
			c.GetLostMs() / 1e3,
		})
	}
	for _, f := range r.GetFailStops() {
		h.FailStops = append(h.FailStops, FailStop{
			f.GetKind(),
			int(f.GetFaults()),
			f.GetShare(),
			int(f.GetRanks()),
			int(f.GetNodes()),
			f.GetMost(),
			int(f.GetTimes()),
			int(f.GetOver()),
			int(f.GetTrains()),
			f.GetDownMs() / 1e3,
		})
	}
	for _, p := range r.GetPaths() {
		h.Paths = append(h.Paths, PathRow{
			p.GetClass(),
			p.GetBytes(),
			int(p.GetPaths()),
			int(p.GetTests()),
			p.GetMeanMs(),
			p.GetCov(),
			p.GetWorst(),
			p.GetWorstCov(),
		})
	}
	for _, t := range r.GetTable() {
		h.Table = append(h.Table, jobCausesOf(t))
	}
	for _, j := range r.GetJobs() {
		h.Jobs = append(h.Jobs, pastJobOf(j))
	}
	for _, c := range r.GetCulprits() {
		h.Culprits = append(h.Culprits, culpritOf(c))
	}
	for _, v := range r.GetPast() {
		h.Past = append(h.Past, pastIncidentOf(v))
	}
	return h
}

func stampOf(ns int64) string {
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}

func spreadOf(s *falconv1.Spread) Spread {
	return Spread{int(s.GetN()), s.GetMean(), append([]float64{}, s.GetQuantiles()...)}
}

func jobCausesOf(t *falconv1.JobCauses) JobCauses {
	out := JobCauses{
		Kind:       t.GetKind(),
		Jobs:       int(t.GetTotal()),
		Slowed:     int(t.GetSlowed()),
		Slowdown:   t.GetSlowdown(),
		Categories: []CategoryJobs{},
	}
	for _, c := range t.GetCategories() {
		out.Categories = append(out.Categories, CategoryJobs{c.GetCategory(), int(c.GetJobs())})
	}
	return out
}

func pastJobOf(j *falconv1.PastJob) PastJob {
	return PastJob{
		Number:     j.GetNumber(),
		Name:       j.GetName(),
		Kind:       j.GetKind(),
		Ranks:      int(j.GetWorld()),
		First:      stampOf(j.GetFirstUnixNs()),
		Last:       stampOf(j.GetLastUnixNs()),
		Over:       j.GetOver(),
		Iterations: j.GetIterations(),
		WatchedS:   j.GetWatchedMs() / 1e3,
		LostS:      j.GetLostMs() / 1e3,
		Incidents:  int(j.GetIncidents()),
		Category:   j.GetCategory(),
		Slowdown:   j.GetSlowdown(),
	}
}

func culpritOf(c *falconv1.Culprit) Culprit {
	out := Culprit{
		Kind:      "gpu",
		Name:      c.GetDevice(),
		Times:     int(c.GetTimes()),
		Jobs:      int(c.GetJobs()),
		Score:     c.GetScore(),
		FirstSeen: stampOf(c.GetFirstUnixNs()),
		LastSeen:  stampOf(c.GetLastUnixNs()),
		Incident:  c.GetLast(),
		Lasts:     c.GetLasts(),
		Causes:    append([]string{}, c.GetCauses()...),
	}
	switch {
	case c.GetLink() != "":
		out.Kind = "link"
		out.Name = c.GetLink()
	case c.GetNic() != "":
		out.Kind = "nic"
		out.Name = c.GetNic()
	}
	return out
}

func pastIncidentOf(v *falconv1.PastIncident) PastIncident {
	return PastIncident{
		ID:        v.GetIncident(),
		Job:       v.GetJob(),
		Epoch:     v.GetEpoch(),
		Onset:     stampOf(v.GetOnsetUnixNs()),
		End:       stampOf(v.GetEndUnixNs()),
		DurationS: float64(v.GetEndUnixNs()-v.GetOnsetUnixNs()) / 1e9,
		HealthyMs: v.GetHealthyMs(),
		SlowMs:    v.GetSlowMs(),
		LostS:     v.GetLostMs() / 1e3,
		Counted:   v.GetCounted(),
		Cause:     v.GetCause(),
		Also:      v.GetAlso(),
		Devices:   append([]string{}, v.GetDevices()...),
		Links:     append([]string{}, v.GetLinks()...),
		NICs:      append([]string{}, v.GetNics()...),
		Unnamed:   int(v.GetUnnamed()),
	}
}
