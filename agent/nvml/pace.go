package nvml

import "time"

// pace is the self-imposed budget: a reading that costs more than BudgetMax doubles the
// period up to PeriodMax, cheap readings halve it back to what was asked for.
type pace struct {
	base, period time.Duration
}

func newPace(base time.Duration) pace {
	if base <= 0 {
		base = time.Second
	}
	return pace{base: base, period: base}
}

func (p *pace) nextInterval(took time.Duration) time.Duration {
	if took > BudgetMax {
		p.period = min(p.period*2, max(PeriodMax, p.base))
	} else {
		p.period = max(p.period/2, p.base)
	}
	return p.period
}
