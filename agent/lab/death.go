package lab

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// Points are the places in an iteration, and in a recovery, at which a rank can
// be stopped: the trainer's own (falcon-trainer --fault).
var Points = []string{
	"forward", "backward", "before-barrier", "mid-update", "after-update", "gather", "park",
	"groups", "restore",
}

// recoveryPoints is the first of those that lie in a recovery: at_iteration is
// then the one that was left (park), or the one resumed at.
const recoveryPoints = 6

// afterMost bounds after_ms.
const afterMost = 60_000

// victim is whom a death or a freeze hits.
type victim struct {
	what string // console, agent, node, rank
	node falcon.Node
	rank falcon.Rank
}

// errVictim is the sentence about a name that fits nothing.
var errVictim = errors.New("it must be engine (or console), agent NODE, rank RANK or node NODE")

// parseVictim reads "rank 5", "node n2", "agent n2" and "console"; a number
// alone is a rank, a name alone a node.
func (s Scenario) parseVictim(text string) (victim, error) {
	if text == "engine" { // which runs in the console's process, or in one of its own without a screen
		text = "console"
	}
	what, which, two := strings.Cut(text, " ")
	if !two && what != "console" {
		if what, which = "node", text; isNumeric(text) {
			what = "rank"
		}
	}
	v := victim{what: what, rank: -1}
	switch what {
	case "console":
		return v, nil
	case "agent", "node":
		v.node = falcon.Node(which)
		return v, s.checkNode(which)
	case "rank":
		r, err := strconv.Atoi(which)
		if world := s.Layout.Layout().World(); err != nil || r < 0 || r >= world {
			return v, fmt.Errorf("there is no rank %q, ranks are 0 to %d", which, world-1)
		}
		v.rank = falcon.Rank(r)
		return v, nil
	}
	return v, errVictim
}

func isNumeric(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// String names the victim as events do.
func (v victim) String() string {
	switch v.what {
	case "console":
		return v.what
	case "rank":
		return fmt.Sprint("rank ", v.rank)
	}
	return v.what + " " + string(v.node)
}

// firstVictim is the rank whose point the death waits for: a node's first.
func (s Scenario) firstVictim(v victim) falcon.Rank {
	if v.what == "rank" {
		return v.rank
	}
	i, _ := s.nodeIndex(v.node) // checked when the scenario was read
	return falcon.Rank(i * s.gpusPerNode())
}

// endsProcesses reports whether the event ends or stops processes.
func (e Event) endsProcesses() bool {
	return e.Kill != "" || e.Freeze != ""
}

// checkDeath checks whom a death or a freeze hits.
func (s Scenario) checkDeath(e Event) error {
	verb := "kill"
	if e.Freeze != "" {
		verb = "freeze"
	}
	v, err := s.parseVictim(e.Kill + e.Freeze)
	switch {
	case err != nil:
		return fmt.Errorf("%s is %q: %w", verb, e.Kill+e.Freeze, err)
	case (v.what == "console" || v.what == "agent") && (e.Freeze != "" || e.Point != ""):
		return fmt.Errorf("%s is %q: only ranks and nodes can be frozen, or stopped at a point", verb, v)
	case e.Point != "" &&
		v.what == "node" &&
		int(s.firstVictim(v)) >= s.Layout.Layout().World():
		return fmt.Errorf("%s is %q: a spare has no rank that comes to a point", verb, v)
	}
	return nil
}

// checkPoint checks what goes with a death's moment.
func (e Event) checkPoint() error {
	switch {
	case !e.endsProcesses() && (e.Point != "" || e.AfterMs != 0 || e.Generation != 0):
		return errors.New("point, generation and after_ms go with kill and freeze")
	case e.Point != "" && !slices.Contains(Points, e.Point):
		return fmt.Errorf("point is %q, it must be one of %s", e.Point, strings.Join(Points, ", "))
	case e.Point != "" && (e.OnStep != "" || e.AfterMs != 0):
		return errors.New("point goes with neither on_step nor after_ms")
	case e.Generation != 0 && !e.inRecovery():
		return errors.New("generation goes with the points park, groups and restore")
	case !(e.AfterMs >= 0 && e.AfterMs <= afterMost):
		return fmt.Errorf("after_ms is %v, it must be 0 to %d", e.AfterMs, afterMost)
	case e.Kill != "" && e.UntilIteration != 0:
		return errors.New("until_iteration goes with freeze, the dead stay dead")
	}
	return nil
}

// inRecovery reports whether the event's point lies in a recovery.
func (e Event) inRecovery() bool {
	return slices.Index(Points, e.Point) >= recoveryPoints
}

// faultArgs are the trainer's, for deaths at a point. A rank of a node that dies
// as a whole stops there, so that its end is not known before the node's.
func (s Scenario) faultArgs() []string {
	var out []string
	for _, e := range s.Events {
		v, err := s.parseVictim(e.Kill + e.Freeze)
		if e.Point == "" || err != nil {
			continue
		}
		how := "kill"
		if e.Freeze != "" || v.what == "node" {
			how = "freeze"
		}
		text := fmt.Sprintf("%s@%d:%d:%s", e.Point, e.AtIteration, s.firstVictim(v), how)
		if e.Generation > 0 {
			text += fmt.Sprintf("/%d", e.Generation)
		}
		out = append(out, "--fault", text)
	}
	return out
}

// deathsBefore are the kills and freezes due before iteration next, or when rank r of
// a placement has begun a step; each is handed out once. Those at a point come
// when the rank logs that it is there: reachedPoint.
func (f *faults) deathsBefore(next int64, step string, r falcon.Rank) []Event {
	var out []Event
	for _, o := range f.events {
		if !o.endsProcesses() ||
			o.done ||
			next < o.AtIteration ||
			o.OnStep != step ||
			o.Point != "" {
			continue
		}
		v, err := f.sc.parseVictim(o.Kill + o.Freeze)
		if err != nil || v.what == "rank" && step != "" && v.rank != r {
			continue // its own step is what it shall die in
		}
		o.done = true
		out = append(out, o.Event)
	}
	return out
}

// eventAtPoint is the event whose point rank r has come to; any with point "". It is
// handed out once.
func (f *faults) eventAtPoint(r falcon.Rank, point string) (Event, bool) {
	for _, o := range f.events {
		if o.Point == "" || o.done || point != "" && o.Point != point {
			continue
		}
		v, err := f.sc.parseVictim(o.Kill + o.Freeze)
		if err == nil && f.sc.firstVictim(v) == r {
			o.done = true
			return o.Event, true
		}
	}
	return Event{}, false
}

// thawsBefore are the freezes that end before iteration next; each is handed out once.
func (f *faults) thawsBefore(next int64) []Event {
	var out []Event
	for _, o := range f.events {
		if o.Freeze != "" &&
			o.done &&
			!o.thawed &&
			o.UntilIteration > 0 &&
			next >= o.UntilIteration {
			o.thawed = true
			out = append(out, o.Event)
		}
	}
	return out
}
