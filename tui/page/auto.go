package page

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Auto returns in words what acts without a person: how high, what next and when,
// and how much of policy's rate is used up; "" where a person must act.
func Auto(s *State) string {
	p := s.Snap().GetPolicy()
	if !phrase.ActsAlone(p) || p.GetFrozen() {
		return ""
	}
	text := "AUTOMATIC UP TO " + p.Cap
	if p.Hours != "" {
		text += " " + p.Hours + " UTC"
	}
	g := automaticRung(s)
	if g == nil {
		return text + ": nothing is due"
	}
	return text + ": " + automaticNext(s, g) + automaticRate(p, g)
}

// automaticRung is the rung that is proposed, else the one that comes next.
func automaticRung(s *State) *falconv1.RungView {
	prop := s.Proposal()
	for _, g := range s.Snap().GetLadder().GetRungs() {
		if prop == nil && g.Next ||
			prop != nil && g.Rung == prop.Rung && g.Variant == prop.Variant {
			return g
		}
	}
	return nil
}

func automaticNext(s *State, g *falconv1.RungView) string {
	prop := s.Proposal()
	switch left, ok := Countdown(s, prop); {
	case ok:
		return g.Rung + " in " + phrase.Seconds(left) + " unless vetoed"
	case prop != nil || g.Approval != falcon.ApprovalAuto:
		return g.Rung + " waits for a person"
	case g.ClockMs > 0:
		return g.Rung +
			" next, once " +
			phrase.Ms(g.ClockMs) +
			" more are lost" +
			phrase.Prefixed(", in about ", phrase.Span(g.DueInMs))
	}
	return g.Rung + " is due"
}

func automaticRate(p *falconv1.Policy, g *falconv1.RungView) string {
	switch most := p.GetRungs()[g.Rung].GetPerHour(); {
	case most > 0:
		return fmt.Sprintf("; %d of %d %s actions this hour", g.TakenHour, most, g.Rung)
	case g.TakenHour > 0:
		return fmt.Sprintf("; %d %s actions this hour, without a limit", g.TakenHour, g.Rung)
	}
	return ""
}

// Countdown is the time until policy approves a proposal; ok is false where a person must.
func Countdown(s *State, a *falconv1.Action) (left time.Duration, ok bool) {
	if a.GetState() != string(falcon.ActionProposed) ||
		a.DeadlineUnixNs == 0 ||
		s.Snap().GetPolicy().GetFrozen() {
		return 0, false
	}
	return max(0, time.Unix(0, a.DeadlineUnixNs).Sub(s.EngineNow())), true
}
