package main

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
)

// mitigateConfig are the planner's settings that sites change. Zero values are
// the planner's defaults.
type mitigateConfig struct {
	// OverheadsMs is what the rungs are expected to cost, until they were measured.
	OverheadsMs map[falcon.Rung]float64 `yaml:"overheads_ms"`
}

const overheadMsMax = 1e9 // eleven days

func (m mitigateConfig) check() error {
	for r, ms := range m.OverheadsMs {
		if r.Level() < 2 || !(ms > 0 && ms <= overheadMsMax) {
			return fmt.Errorf("%w: mitigate.overheads_ms: %s: %v; give S2, S3 or S4 its expected cost in ms", errUsage, r, ms)
		}
	}
	return nil
}

func (m mitigateConfig) planner() mitigate.Config { return mitigate.Config{OverheadsMs: m.OverheadsMs} }
