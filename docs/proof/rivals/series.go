package rivals

import (
	"math"
	"slices"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/docs/proof/evaltest"
)

// SeriesMethod is a rule that reads the iteration times of a job.
type SeriesMethod struct {
	Name    string
	Setting string    // what is tuned
	Default float64   // its authors' value
	Tries   []float64 // values among which the tuned one is chosen; none = not tuned
	// Read goes through a series and returns what would be reported with a setting.
	Read func(ms []float64) func(setting float64) []evaltest.Report
}

// shares are the changes among which verification is tuned.
var shares = []float64{0.05, 0.08, 0.10, 0.15, 0.20, 0.30, 0.50}

// releasedEvery is the distance of two runs of BEAST here: 5 s of the released program
// are 10 iterations on a single node and 1 to 3 at scale. It changes delays and cost.
const releasedEvery = 20

// SeriesMethods are the rules that read a job's series, Falcon's last.
func SeriesMethods() []SeriesMethod {
	return []SeriesMethod{
		{"sliding window, each iteration", "change", 0.10, shares, always(evaltest.SlidingPoint)},
		{"sliding window, mean", "change", 0.10, shares, always(evaltest.SlidingMean)},
		{
			"BOCD",
			"P(r ≤ w)",
			bocd.DefaultThreshold,
			[]float64{0.5, 0.9, 0.99, 0.999, 0.99999},
			always(plainAt),
		},
		{"BOCD+V, as defined", "change", 0.10, shares, verifiedAt},
		{beastName, "change", DefaultReleased(Beast{}, 0).Change, shares, releasedAt},
		{
			"Falcon, 10 % rule",
			"",
			0,
			nil,
			always(func(ms []float64, _ float64) []evaltest.Report {
				return evaltest.Falcon(ms)
			}),
		},
		{"Falcon, adaptive", "", 0, nil, always(adaptive)},
	}
}

const beastName = "BEAST, as released"

// always is a method that goes through a series for each setting.
func always(
	report func(ms []float64, setting float64) []evaltest.Report,
) func([]float64) func(float64) []evaltest.Report {
	return func(ms []float64) func(float64) []evaltest.Report {
		return func(setting float64) []evaltest.Report { return report(ms, setting) }
	}
}

func plainAt(ms []float64, threshold float64) []evaltest.Report {
	cfg := bocd.DefaultConfig()
	cfg.Threshold = threshold
	return evaltest.PlainChangePoints(ms, cfg)
}

func verifiedAt(ms []float64) func(float64) []evaltest.Report {
	alarms := plainAt(ms, bocd.DefaultThreshold)
	return func(over float64) []evaltest.Report { return evaltest.VerifiedChangePoints(ms, alarms, over) }
}

func releasedAt(ms []float64) func(float64) []evaltest.Report {
	d := DefaultReleased(ShortBeast(), releasedEvery)
	runs := d.Runs(ms, 1)
	return func(change float64) []evaltest.Report {
		d.Change = change
		return d.Reports(runs)
	}
}

func adaptive(ms []float64, _ float64) []evaltest.Report {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verification = bocd.VerifyAdaptive
	return evaltest.Tracked(ms, cfg)
}

// settings are the default and the tries, each once.
func (m SeriesMethod) settings() []float64 {
	out := append([]float64{m.Default}, m.Tries...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Scores are what a method made of jobs, by setting.
type Scores map[float64]*evaltest.Score

// JudgeSeries gives the jobs from number first to before last to a method, n
// iterations each.
func (m SeriesMethod) JudgeSeries(mix evaltest.Mix, seed, first, last uint64, n int) Scores {
	out := Scores{}
	for number := first; number < last; number++ {
		j := evaltest.Generate(mix, seed, number, n)
		read := m.Read(j.Ms)
		for _, s := range m.settings() {
			if out[s] == nil {
				out[s] = &evaltest.Score{}
			}
			out[s].Take(number, j, read(s))
		}
	}
	return out
}

// Add joins the scores of other jobs.
func (s Scores) Add(other Scores) {
	for setting, score := range other {
		if s[setting] == nil {
			s[setting] = &evaltest.Score{}
		}
		s[setting].Add(*score)
	}
}

// Best is the setting with the greatest mean of the shares of slow and of healthy jobs
// that are judged rightly: slow ones are few. Of equal ones it is that with the fewest
// reports outside of spells, then the least.
func (s Scores) Best() float64 {
	best := math.NaN()
	for setting, score := range s {
		top := s[best]
		switch {
		case top == nil, balanced(score) > balanced(top):
			best = setting
		case balanced(score) < balanced(top):
		case score.Stray < top.Stray, score.Stray == top.Stray && setting < best:
			best = setting
		}
	}
	return best
}

// balanced is the mean of the shares of slow and of healthy jobs that are judged rightly.
func balanced(s *evaltest.Score) float64 {
	return 1 - (s.FPR()+s.FNR())/2
}

// Quiet counts what a method reports of undisturbed series.
type Quiet struct {
	Iterations, Reports int
}

// Listen gives a class of undisturbed noise to a method, jobs of n iterations each,
// whose noise is 0.1 % to 3 %.
func (m SeriesMethod) Listen(noise evaltest.Noise, seed uint64, jobs, n int) map[float64]Quiet {
	out := map[float64]Quiet{}
	for job := range uint64(jobs) {
		read := m.Read(evaltest.Undisturbed(noise, seed, job, n))
		for _, s := range m.settings() {
			q := out[s]
			q.Iterations += n
			q.Reports += len(read(s))
			out[s] = q
		}
	}
	return out
}
