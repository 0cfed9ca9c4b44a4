package evaltest

import "slices"

// Score counts what one method made of jobs.
type Score struct {
	TruePositive, FalsePositive  int // jobs
	TrueNegative, FalseNegative  int
	Spells, Found                int   // spells, and those that a report means
	Stray                        int   // reports that mean no spell, in all jobs
	Points                       int   // iterations of the jobs
	Delays                       []int // of found spells of 20 % and more that began at once
	Misses                       []int // numbers of the jobs missed or wrongly flagged, at most keepMisses
	LadderSpells, LadderFound    int
	FromStart, FromStartRelieved int
}

const keepMisses = 20

// Accuracy is the share of jobs judged rightly; FPR that of healthy jobs
// flagged; FNR that of slow jobs missed. 0 of none.
func (s *Score) Accuracy() float64 {
	return part(s.TruePositive+s.TrueNegative, s.Jobs())
}

// FPR is the share of healthy jobs that were flagged.
func (s *Score) FPR() float64 {
	return part(s.FalsePositive, s.FalsePositive+s.TrueNegative)
}

// FNR is the share of slow jobs that were missed.
func (s *Score) FNR() float64 {
	return part(s.FalseNegative, s.FalseNegative+s.TruePositive)
}

// Jobs is how many jobs were judged.
func (s *Score) Jobs() int {
	return s.TruePositive + s.FalsePositive + s.TrueNegative + s.FalseNegative
}

func part(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Take judges one job.
func (s *Score) Take(number uint64, j Job, reports []Report) {
	hit := false
	s.Points += len(j.Ms)
	for _, sp := range j.Spells {
		r, found := sp.first(reports)
		hit = hit || found
		s.spell(sp, r, found)
	}
	for _, r := range reports {
		if !slices.ContainsFunc(j.Spells, func(sp Spell) bool {
			return sp.means(r)
		}) {
			s.Stray++
		}
	}
	s.job(number, len(j.Spells) > 0, hit, len(reports) > 0)
}

func (s *Score) spell(sp Spell, r Report, found bool) {
	s.Spells++
	if sp.Ladder {
		s.LadderSpells++
	}
	if sp.From == 0 {
		s.FromStart++
	}
	if !found {
		return
	}
	s.Found++
	switch {
	case sp.Ladder:
		s.LadderFound++
	case sp.From == 0:
		s.FromStartRelieved++
	case sp.Depth >= 0.2:
		s.Delays = append(s.Delays, r.Seen-sp.From)
	}
}

func (s *Score) job(number uint64, slow, hit, flagged bool) {
	wrong := true
	switch {
	case slow && hit:
		s.TruePositive++
		wrong = false
	case slow:
		s.FalseNegative++
	case flagged:
		s.FalsePositive++
	default:
		s.TrueNegative++
		wrong = false
	}
	if wrong && len(s.Misses) < keepMisses {
		s.Misses = append(s.Misses, int(number))
	}
}

// Tally is the scores of all methods on one mix.
type Tally struct {
	Mix    Mix
	Points int // of all jobs
	By     [methods]Score
}

// Run generates and judges the jobs from number first to before last, n
// iterations each; the baselines only see those before baselines.
func Run(m Mix, seed, first, last, baselines uint64, n int) Tally {
	t := Tally{Mix: m}
	for number := first; number < last; number++ {
		j := Generate(m, seed, number, n)
		t.Points += len(j.Ms)
		if number >= baselines {
			t.By[Ours].Take(number, j, Falcon(j.Ms))
			continue
		}
		for method, reports := range Reports(j.Ms) {
			t.By[method].Take(number, j, reports)
		}
	}
	return t
}

// Add joins the scores of other jobs of the same mix.
func (t *Tally) Add(u Tally) {
	t.Points += u.Points
	for i := range t.By {
		t.By[i].Add(u.By[i])
	}
}

// Add joins the score of other jobs.
func (s *Score) Add(u Score) {
	s.TruePositive += u.TruePositive
	s.FalsePositive += u.FalsePositive
	s.TrueNegative += u.TrueNegative
	s.FalseNegative += u.FalseNegative
	s.Spells += u.Spells
	s.Found += u.Found
	s.Stray += u.Stray
	s.Points += u.Points
	s.LadderSpells += u.LadderSpells
	s.LadderFound += u.LadderFound
	s.FromStart += u.FromStart
	s.FromStartRelieved += u.FromStartRelieved
	s.Delays = append(s.Delays, u.Delays...)
	s.Misses = append(s.Misses, u.Misses...)
	s.Misses = s.Misses[:min(len(s.Misses), keepMisses)]
}

// quantile sorts values in place and returns the one below which a share of
// them lies; −1 of none.
func quantile(values []int, share float64) int {
	if len(values) == 0 {
		return -1
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(share*float64(len(values))))]
}
