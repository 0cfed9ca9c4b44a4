package tui

import (
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// barLines say what a bar keeps out, for how long, and what it leaves alone.
func barLines(q *decision.Demand, live *page.State, w int) []page.Line {
	now := live.EngineNow()
	out := wrapLines(
		themes.Title,
		q.Node+
			" is not used as a spare for "+
			phrase.Lasting(q.Long)+
			", until "+
			phrase.Clock(now.Add(q.Long), now, live.Zone),
		w,
	)
	out = append(out, wrapLines(
		themes.Text,
		"Neither S4 nor a recovery places ranks on it meanwhile, on none of its devices. Ranks that are on it stay.",
		w,
	)...)
	if text := page.DeviceHistory(live, q.Node); text != "" {
		out = append(out, wrapLines(themes.Text, text, w)...)
	}
	if q.Anyway {
		return append(out, wrapLines(
			themes.Warn,
			"Where it is the last spare, a node that fails can't be replaced meanwhile.",
			w,
		)...)
	}
	return append(out, wrapLines(
		themes.Text,
		"The last spare is not barred, unless the time has a ! behind it.",
		w,
	)...)
}
