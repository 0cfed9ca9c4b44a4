package tui

import (
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// renewPeriod is how often an open incident that is only looked at is asked
// for again; the present one comes with every snapshot.
const renewPeriod = 2 * time.Second

// display owns the states that the screen shows: the newest one, the one that
// pages draw, which is held while paused, and an incident that is looked at in
// the present one's place. One that is open takes header, proposal bar, keys
// and pages along: what is shown is what is decided on. A past one is for
// reading on the pages that show incidents, and all else stays with the
// present one.
type display struct {
	live     *page.State // what header, bar and dialogs draw
	state    *page.State // what pages draw; behind live while paused
	pausedAt time.Time   // zero while the display runs
	look     *browsing   // nil = the present incident
}

// browsing is an incident that is looked at in the present one's place.
type browsing struct {
	id    string
	reply *falconv1.IncidentsReply
	asked time.Time
}

type incidentMsg struct {
	id    string
	reply *falconv1.IncidentsReply
	err   error
}

func newDisplay(f *feed.State, keys *key.Map, zone *time.Location) display {
	s := page.NewState(f)
	s.Keys, s.Zone = keys, zone
	return display{live: s, state: s}
}

// isRunning reports whether pages show the newest state.
func (d *display) isRunning() bool { return d.pausedAt.IsZero() }

// setDrawTime is the moment at which the next picture is drawn.
func (d *display) setDrawTime(now time.Time) {
	d.live.Now = now
	if d.isRunning() {
		d.state.Now = now
	}
}

// holdPages keeps the pages on a copy of the present state.
func (d *display) holdPages(now time.Time) {
	held := *d.live
	d.state = &held
	d.pausedAt = now
}

// resumePages lets the pages follow again. It returns the filter of the held ranks, to be applied.
func (d *display) resumePages() (rankFilter string) {
	d.live.Filter = d.state.Filter
	d.live.Metric = d.state.Metric
	rankFilter = d.state.RankFilter()
	d.state = d.live
	d.pausedAt = time.Time{}
	return rankFilter
}

// shareChoice keeps the live state on the operator's rank while paused.
func (d *display) shareChoice() {
	switch {
	case d.live == d.state:
	case d.state.Following():
		d.live.Follow()
	default:
		d.live.Select(d.state.Rank())
	}
}

// browseTo looks at an incident; the present one, or "", ends browsing. It
// reports whether the incident has to be fetched.
func (d *display) browseTo(id string, now time.Time) bool {
	if present := d.live.Incident(); id == "" || present != nil && present.Id == id {
		d.look = nil
		return false
	}
	reply := &falconv1.IncidentsReply{}
	if i := d.listedIndex(id); i >= 0 { // what is known until the answer comes
		reply.Incidents = d.live.Snap().Incidents[i : i+1]
	}
	d.look = &browsing{id: id, reply: reply, asked: now}
	return true
}

func (d *display) listedIndex(id string) int {
	return slices.IndexFunc(d.live.Snap().Incidents, func(i *falconv1.Incident) bool {
		return i.GetId() == id
	})
}

// takeFetched takes the answer about the incident looked at, and returns why there is none, or "".
func (d *display) takeFetched(msg incidentMsg) string {
	switch {
	case d.look == nil || d.look.id != msg.id:
	case msg.err != nil:
		if len(d.look.reply.GetIncidents()) == 0 {
			d.look = nil
		}
		return msg.err.Error()
	case len(msg.reply.GetIncidents()) == 0:
		d.look = nil
		return "there is no incident " + msg.id
	default:
		d.look.reply = msg.reply
	}
	return ""
}

// renewLooked ends browsing when the incident has become the present one. It reports
// whether to fetch it again: its fault lasts and no snapshot holds it.
func (d *display) renewLooked(now time.Time) bool {
	if d.look == nil {
		return false
	}
	if present := d.live.Incident(); present != nil && present.Id == d.look.id {
		d.look = nil
		return false
	}
	if _, live := d.live.About(d.look.id); live {
		return false
	}
	i := d.listedIndex(d.look.id)
	if i < 0 ||
		!page.Open(d.live.Snap().Incidents[i]) && !page.Open(d.look.reply.GetIncidents()[0]) ||
		now.Sub(d.look.asked) < renewPeriod {
		return false
	}
	d.look.asked = now
	return true
}

// stepFrom is the incident that is older (+1) or newer (-1), or why there is none.
func (d *display) stepFrom(by int) (id, why string) {
	list := d.live.Snap().Incidents
	if len(list) == 0 {
		return "", "there has been no incident"
	}
	at := 0
	if d.look != nil {
		at = max(0, d.listedIndex(d.look.id))
	}
	switch to := at + by; {
	case to < 0:
		return "", "this is the present incident; [ goes to older ones"
	case to >= len(list):
		return "", fmt.Sprintf("%s is the oldest that is listed; :open INC-… shows any",
			list[len(list)-1].GetId())
	default:
		return list[to].GetId(), ""
	}
}

// subjectState is the live state about the incident of header, bar and keys: the one
// in a dialog, else the open one looked at, else the present one.
func (d *display) subjectState(asked string) *page.State {
	if asked == "" && d.look != nil {
		asked = d.look.id
	}
	if asked == "" {
		return d.live
	}
	if s, ok := d.live.About(asked); ok {
		return s
	}
	return d.live
}

// awaitedState is the incident that approving and vetoing act on: the subject, else
// the one whose action is approved and has not gone out.
func (d *display) awaitedState(asked string) *page.State {
	s := d.subjectState(asked)
	if s.Awaited() != nil || asked != "" {
		return s
	}
	if other, ok := d.live.About(d.live.PendingFor()); ok {
		return other
	}
	return s
}

// waitingElse lists the other incidents that wait for a decision, the next one first.
func (d *display) waitingElse(asked string) []string {
	list := d.live.Waiting()
	own := d.subjectState(asked).Incident().GetId()
	if i := slices.Index(list, own); i >= 0 {
		list = slices.Concat(list[i+1:], list[:i])
	}
	return list
}

// drawnState is the state that a page draws, with the incident looked at where there is one.
func (d *display) drawnState(on key.Scope) *page.State {
	if d.look == nil || !showsIncident(on) {
		return d.state
	}
	if s, ok := d.state.About(d.look.id); ok {
		return s
	}
	return d.state.Showing(d.look.reply)
}

func showsIncident(on key.Scope) bool {
	return on == key.Ladder || on == key.Overview
}

// readOnlyReason returns why nothing can be decided on the incident looked at, or "".
func (d *display) readOnlyReason() string {
	if d.look == nil {
		return ""
	}
	if _, ok := d.live.About(d.look.id); ok {
		return ""
	}
	return d.look.id + " is shown to read; " + d.live.Key(key.Global, key.Why) +
		" goes back to the present incident"
}

// lookedID is the incident looked at in the present one's place, or "".
func (d *display) lookedID() string {
	if d.look != nil {
		return d.look.id
	}
	return ""
}

// shownIncident is the incident on screen, or "".
func (d *display) shownIncident() string {
	if d.look != nil {
		return d.look.id
	}
	return d.live.Incident().GetId()
}

// browsingNote returns which incident is on a page, and that a past one is only to be
// read; "" where it is the present one.
func (d *display) browsingNote(on key.Scope) (themes.Role, string) {
	if d.look == nil || !showsIncident(on) {
		return "", ""
	}
	place := ""
	if i := d.listedIndex(d.look.id); i >= 0 {
		place = fmt.Sprintf(" (%d of %d)", i+1, len(d.live.Snap().Incidents))
	}
	newer := "; " + d.live.Keys.Name(key.NewerIncident, key.Overview) + " newer "
	if d.readOnlyReason() == "" {
		return themes.Accent, " " + d.look.id + place + newer
	}
	return themes.Urgent, " " + d.look.id + place + ", to read only" + newer
}
