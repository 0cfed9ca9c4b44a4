package tui

import (
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Bounds of what a dialog lists; what is more is counted.
const (
	pastMost  = 4 // devices with a past
	movesMost = 6 // ranks that move
)

// pastLines name the devices that a decision would have the job run on and that the
// history names.
func pastLines(q decision.Question, live *page.State, w int) []page.Line {
	used := newDevices(q)
	var out []page.Line
	named := 0
	for _, c := range live.Snap().GetCulprits() {
		if c.GetDevice() == "" || !slices.Contains(used, c.GetDevice()) {
			continue
		}
		if named++; named <= pastMost {
			out = append(out, wrapLines(
				themes.Warn,
				"It would run on "+page.DeviceHistory(live, c.GetDevice()),
				w,
			)...)
		}
	}
	if more := named - pastMost; more > 0 {
		out = append(out, wrapLines(
			themes.Warn,
			fmt.Sprintf("and on %d more devices that incidents have named", more),
			w,
		)...)
	}
	return out
}

// newDevices are those that ranks run on after the decision, as far as it moves any.
func newDevices(q decision.Question) []string {
	switch q := q.(type) {
	case *decision.Approve:
		return q.Action.GetPlacement()
	case *decision.Recovery:
		if q.Verb == decision.VerbApprove {
			return slices.Collect(maps.Values(q.Recovery.GetReplaced()))
		}
	}
	return nil
}

// moveLines say which ranks a recovery would restart, and where; as far as it is known
// before the survivors have said what they hold.
func moveLines(v *falconv1.Recovery, live *page.State, w int) []page.Line {
	var moves []string
	for _, rank := range slices.Sorted(maps.Keys(v.GetReplaced())) {
		moves = append(moves, moveText(rank, live.Roster.View(rank).GetDevice(), v.Replaced[rank]))
	}
	text := ""
	if len(moves) > 0 {
		text = "Changes: " + phrase.Few(moves, movesMost) + ". "
	}
	if without := withoutPlace(v); len(without) > 0 {
		text += "No spare is there for " + phrase.Ranks(without, movesMost) + ". "
	}
	switch {
	case text == "":
		return nil
	case !v.Whole:
		text += fmt.Sprintf("%s processes stay.", phrase.Count(int64(len(v.Survivors))))
	}
	return wrapLines(themes.Title, text, w)
}

func moveText(rank int32, from, to string) string {
	switch {
	case from == to || from == "":
		return fmt.Sprintf("rank %d restarts on %s", rank, to)
	case falcon.Device(from).Node() == falcon.Device(to).Node():
		return fmt.Sprintf("rank %d moves from %s to %s of the same node", rank, from, to)
	}
	return fmt.Sprintf("rank %d moves from %s to %s", rank, from, to)
}

// withoutPlace are the lost ranks for which no device is left.
func withoutPlace(v *falconv1.Recovery) []int32 {
	var out []int32
	for _, f := range v.GetFaults() {
		for _, r := range f.GetRanks() {
			if _, placed := v.Replaced[r]; !placed && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}
