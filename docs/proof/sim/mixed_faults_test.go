package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Trial is one seed's three runs: without faults, with them, with Falcon too.
type Trial struct {
	Seed                uint64
	Trace               Trace
	Healthy, Slow, With Result
}

// Try plays a scenario's seed.
func (s Scenario) Try(seed uint64) Trial {
	t := Trial{Seed: seed, Trace: s.Mix.Draw(s.Shape, seed)}
	t.Healthy = Run(s.Shape, nil, s.Costs, seed, s.Mix.RunS, false)
	t.Slow = Run(s.Shape, t.Trace, s.Costs, seed, s.Mix.RunS, false)
	t.With = Run(s.Shape, t.Trace, s.Costs, seed, s.Mix.RunS, true)
	return t
}

// Removed is the share of the slowdown that Falcon took away, in throughput
// over the whole run, delays and overheads counted in (table 7's figure).
func (t Trial) Removed() float64 {
	return (t.With.PerMinute() - t.Slow.PerMinute()) / (t.Healthy.PerMinute() - t.Slow.PerMinute())
}

// named counts the faults that an incident named while they lasted or as soon
// as it was reported.
func (t Trial) named() int {
	n := 0
	for _, f := range t.Trace {
		if slices.ContainsFunc(t.With.Incidents, func(i falcon.Incident) bool {
			return f.in(i.Verdict)
		}) {
			n++
		}
	}
	return n
}

func (f Fault) in(v falcon.Verdict) bool {
	return slices.Contains(v.Devices, f.Device) || slices.Contains(v.Links, f.Link)
}

// taken counts actions that took force, by rung.
func (t Trial) taken(r falcon.Rung) int {
	n := 0
	for _, a := range t.With.Actions {
		if a.Rung == r && a.AppliedIteration != falcon.NoIteration {
			n++
		}
	}
	return n
}

// falseAlarms counts incidents that blame hardware which no fault touched.
func (t Trial) falseAlarms() int {
	n := 0
	for _, i := range t.With.Incidents {
		blames := len(i.Verdict.Devices)+len(i.Verdict.Links) > 0
		if blames &&
			!slices.ContainsFunc(t.Trace, func(f Fault) bool {
				return f.in(i.Verdict)
			}) {
			n++
		}
	}
	return n
}

// Spread is median, least and most of a figure over seeds.
type Spread struct{ Median, Least, Most float64 }

// Over spreads a figure over the trials; NaNs are no figures.
func Over(trials []Trial, figure func(Trial) float64) Spread {
	var v []float64
	for _, t := range trials {
		if x := figure(t); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{falcon.Median(v), slices.Min(v), slices.Max(v)}
}

func (s Spread) text(format string) string {
	return fmt.Sprintf(
		format+" ("+format+" to "+format+")",
		s.Median,
		s.Least,
		s.Most,
	)
}

// Markdown is a scenario's table: the paper's row, where there is one, then
// ours over all seeds, and how the slowdown that was left came about.
func (s Scenario) Markdown(trials []Trial) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"### %s (an emulation), %d seeds\n\n| | healthy, it/min | slow | with Falcon | slowdown removed | named | S2 / S3 taken | false alarms |\n|---|---|---|---|---|---|---|---|\n",
		s.Shape.Name, len(trials))
	if s.Mitigated > 0 {
		fmt.Fprintf(&b, "| FALCON table 7 | %.1f | %.1f | %.1f | 60.1 %% | | | |\n",
			s.Healthy, s.Slow, s.Mitigated)
	}
	faults := 0
	named, s2, s3, wrong := 0, 0, 0, 0
	for _, t := range trials {
		faults += len(t.Trace)
		named += t.named()
		s2 += t.taken(falcon.RungS2)
		s3 += t.taken(falcon.RungS3)
		wrong += t.falseAlarms()
	}
	rate := func(of func(Trial) Result) string {
		return Over(trials, func(t Trial) float64 {
			return of(t).PerMinute()
		}).text("%.2f")
	}
	fmt.Fprintf(&b, "| Falcon, median (least to most) | %s | %s | %s | %s | %d of %d | %d / %d | %d |\n",
		rate(func(t Trial) Result { return t.Healthy }),
		rate(func(t Trial) Result { return t.Slow }),
		rate(func(t Trial) Result { return t.With }),
		Over(trials, func(t Trial) float64 {
			return 100 * t.Removed()
		}).text("%.1f %%"), named, faults, s2, s3, wrong)
	fmt.Fprintf(&b, "\nHeld for tests and swaps: %s s a run. %d seeds of %d remove 75 %% or more.\n",
		Over(trials, func(t Trial) float64 {
			return t.With.HeldMs / 1000
		}).text("%.1f"), s.reached(trials, 0.75), len(trials))
	return b.String()
}

func (s Scenario) reached(trials []Trial, share float64) int {
	n := 0
	for _, t := range trials {
		if t.Removed() >= share {
			n++
		}
	}
	return n
}

// Worst lists the trials by what was removed, least first, with the faults.
func Worst(trials []Trial, most int) string {
	order := slices.Clone(trials)
	slices.SortFunc(order, func(a, b Trial) int {
		return cmp.Compare(a.Removed(), b.Removed())
	})
	var b strings.Builder
	for _, t := range order[:min(most, len(order))] {
		fmt.Fprintf(&b, "seed %d: %.1f %% removed, %d of %d faults named\n",
			t.Seed, 100*t.Removed(), t.named(), len(t.Trace))
		for _, f := range t.Trace {
			what := string(f.Device)
			if what == "" {
				what = f.Link.String()
			}
			fmt.Fprintf(&b, "  %s %.2f times as slow from %.0f s for %.0f s\n",
				what, f.Times, f.FromS, f.ForS)
		}
	}
	return b.String()
}
