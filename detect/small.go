package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// A slowdown below twice Settled is small: within Settled of healthy is no relief of
// it, a handful of iterations show no level, and it is reported only once it has cost
// what looking at it does.

// smallOver is how many iterations show whether a small slowdown is over.
const smallOver = 24

// isSmall reports whether a slowdown is one that Verify would not tell, or hardly.
func (c *Config) isSmall(healthyMs, slowMs float64) bool {
	least := c.Tracker.Least()
	return least < c.Tracker.Verify &&
		healthyMs > 0 &&
		slowMs >= healthyMs*(1+least) &&
		slowMs < healthyMs*(1+2*c.Settled)
}

// isSmall reports whether an incident is.
func (s *incidentState) isSmall(cfg *Config) bool {
	return cfg.isSmall(s.HealthyMs, s.SlowMs)
}

// levelBack reports whether the iteration time is back where it was: within the
// settled share of healthy, of a small slowdown half of what it cost.
func (rj *reliefJudge) levelBack(s *incidentState, iteration int64) bool {
	healthy, between := rj.healthyLevels(s)
	if s.isSmall(rj.cfg) {
		tail := rj.samples.slowest.newestValues(smallOver)
		return iteration >= s.DetectedIteration+smallOver && falcon.Median(slices.Clone(tail)) <= between
	}
	tail := rj.samples.slowest.newestValues(levelOver)
	return iteration >= s.DetectedIteration+levelOver &&
		falcon.Median(slices.Clone(tail)) <= healthy*(1+rj.cfg.Settled) &&
		allButOneBelow(tail, max(between, healthy*(1+rj.cfg.Settled)))
}

// backText says how near the iteration time is to what it was.
func (rj *reliefJudge) backText(s *incidentState) string {
	if s.isSmall(rj.cfg) {
		return fmt.Sprintf("the iteration time is back within %.1f %% of what it was",
			50*(s.SlowMs/s.HealthyMs-1))
	}
	return "the iteration time is back within 5 % of what it was"
}

// healthyLevels are the level at which an incident is over, and the middle between it
// and its own.
func (rj *reliefJudge) healthyLevels(s *incidentState) (healthy, between float64) {
	healthy = max(s.HealthyMs, s.floorMs)
	return healthy, (healthy + max(s.SlowMs, healthy)) / 2
}

// hasPaidItself reports whether a slowdown has cost as much as the least that is
// reported at once: TellAfter iterations at Verify.
func (s *incidentState) hasPaidItself(cfg *Config, iteration int64) bool {
	lasted := float64(iteration - s.OnsetIteration + 1)
	if !s.isSmall(cfg) {
		return lasted >= float64(cfg.TellAfter)
	}
	return lasted*(s.SlowMs/s.HealthyMs-1) >= float64(cfg.TellAfter)*cfg.Tracker.Verify
}

// rules are the thresholds of the comparison of ranks and groups. While a small
// slowdown is open its culprit is as little slower, so half of what it costs is
// suspicious, and a group must cost half of it.
func (ev *evidence) rules() peer.Rules {
	rules := ev.cfg.Rules.WithDefaults()
	for _, s := range ev.incidents.openIncidents() {
		half := (s.SlowMs/s.HealthyMs - 1) / 2
		if s.isSmall(ev.cfg) && 1+half < rules.Suspect {
			rules.Suspect = 1 + half
			rules.Margin = 1 + half*marginShare
			rules.Matter = half
			rules.Small = true
		}
	}
	return rules
}

// marginShare is Margin's share of what is suspicious, as 3 % is of 10 %.
const marginShare = 0.3
