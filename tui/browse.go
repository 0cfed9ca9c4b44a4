package tui

import (
	"context"
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// renewPeriod is how often an open incident that is only looked at is asked
// for again; the present one comes with every snapshot.
const renewPeriod = 2 * time.Second

// browsing is an incident that is looked at in the present one's place. One
// that is open takes header, proposal bar, keys and pages along: what is shown
// is what is decided on. A past one is for reading on the pages that show
// incidents, and all else stays with the present one.
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

// browse shows an incident; the present one, or "", ends browsing.
func (m *Model) browse(id string) tea.Cmd {
	m.dirty = true
	if present := m.live.Incident(); id == "" || present != nil && present.Id == id {
		m.look = nil
		return nil
	}
	reply := &falconv1.IncidentsReply{}
	if i := m.listed(id); i >= 0 { // what is known until the answer comes
		reply.Incidents = m.live.Snap().Incidents[i : i+1]
	}
	m.look = &browsing{id: id, reply: reply}
	return m.fetch()
}

func (m *Model) fetch() tea.Cmd {
	id := m.look.id
	m.look.asked = m.now()
	return func() tea.Msg {
		r, err := m.src.Incidents(context.Background(), id)
		return incidentMsg{id, r, err}
	}
}

func (m *Model) listed(id string) int {
	return slices.IndexFunc(m.live.Snap().Incidents, func(i *falconv1.Incident) bool { return i.GetId() == id })
}

// fetched takes an answer over, if it is still what is looked at.
func (m *Model) fetched(msg incidentMsg) {
	if m.look == nil || m.look.id != msg.id {
		return
	}
	m.dirty = true
	switch {
	case msg.err != nil:
		if len(m.look.reply.GetIncidents()) == 0 {
			m.look = nil
		}
		m.say(themes.Warn, msg.err.Error())
	case len(msg.reply.GetIncidents()) == 0:
		m.look = nil
		m.say(themes.Warn, "there is no incident "+msg.id)
	default:
		m.look.reply = msg.reply
	}
}

// renew asks again for an incident whose fault lasts and that no snapshot
// holds, and ends browsing when the incident has become the present one.
func (m *Model) renew() tea.Cmd {
	if m.look == nil {
		return nil
	}
	if present := m.live.Incident(); present != nil && present.Id == m.look.id {
		m.look = nil
		return nil
	}
	if _, live := m.live.About(m.look.id); live {
		return nil
	}
	i := m.listed(m.look.id)
	if i < 0 || !page.Open(m.live.Snap().Incidents[i]) && !page.Open(m.look.reply.GetIncidents()[0]) || m.now().Sub(m.look.asked) < renewPeriod {
		return nil
	}
	return m.fetch()
}

// stepIncident goes to an older (+1) or newer (-1) incident; the first is the
// present one.
func (m *Model) stepIncident(by int) tea.Cmd {
	list := m.live.Snap().Incidents
	if len(list) == 0 {
		m.say(themes.Dim, "there has been no incident")
		return nil
	}
	at := 0
	if m.look != nil {
		at = max(0, m.listed(m.look.id))
	}
	to := at + by
	switch {
	case to < 0:
		m.say(themes.Dim, "this is the present incident; [ goes to older ones")
		return nil
	case to >= len(list):
		m.say(themes.Dim, fmt.Sprintf("%s is the oldest that is listed; :open INC-… shows any", list[len(list)-1].GetId()))
		return nil
	}
	return m.browse(list[to].GetId())
}

// subject is the live state about the one incident that header, bar and keys
// speak of: that of the open dialog, else the open one that is looked at, else
// the present one.
func (m *Model) subject() *page.State {
	id := m.dialog.incident()
	if id == "" && m.look != nil {
		id = m.look.id
	}
	if id == "" {
		return m.live
	}
	if s, ok := m.live.About(id); ok {
		return s
	}
	return m.live
}

// waitingElse lists the incidents that wait for a decision beside the one that
// the bar speaks of, the next one first.
func (m *Model) waitingElse() []string {
	list, own := m.live.Waiting(), m.subject().Incident().GetId()
	if i := slices.Index(list, own); i >= 0 {
		list = slices.Concat(list[i+1:], list[:i])
	}
	return list
}

// why shows the ladder of what the bar speaks of; pressed again, or where only
// another incident waits, that of the next one that waits.
func (m *Model) why() tea.Cmd {
	there := m.current == key.Ladder
	m.show(key.Ladder)
	others := m.waitingElse()
	switch {
	case m.readOnly() != "":
		m.look = nil
	case len(others) > 0 && (there || m.subject().Proposal() == nil):
		return m.browse(others[0])
	case there:
		m.look = nil
	}
	return nil
}

// unseen says why what the bar speaks of can't be approved from here, or "": a
// past incident is on the page. Vetoing is safe and stays at hand.
func (m *Model) unseen() string {
	if m.current != key.Ladder && m.current != key.Overview {
		return ""
	}
	return m.readOnly()
}

// drawnState is the state that a page draws: the one that shows the incident
// looked at where there is one.
func (m *Model) drawnState(on key.Scope) *page.State {
	if m.look == nil || on != key.Ladder && on != key.Overview {
		return m.state
	}
	if s, ok := m.state.About(m.look.id); ok {
		return s
	}
	return m.state.Showing(m.look.reply)
}

// lookBanner says which incident is on the page, and that a past one is only to
// be read.
func (m *Model) lookBanner() string {
	if m.look == nil || m.current != key.Ladder && m.current != key.Overview {
		return ""
	}
	place := ""
	if i := m.listed(m.look.id); i >= 0 {
		place = fmt.Sprintf(" (%d of %d)", i+1, len(m.live.Snap().Incidents))
	}
	newer := "; " + m.table.Name(key.NewerIncident, key.Overview) + " newer "
	if m.readOnly() == "" {
		return m.skin.put(themes.Accent, " "+m.look.id+place+newer)
	}
	return m.skin.put(themes.Urgent, " "+m.look.id+place+", to read only"+newer)
}

// readOnly says why nothing can be decided on the incident that is looked at,
// or "".
func (m *Model) readOnly() string {
	if m.look == nil {
		return ""
	}
	if _, ok := m.live.About(m.look.id); ok {
		return ""
	}
	return m.look.id + " is shown to read; " + m.table.Name(key.Why, key.Global) + " goes back to the present incident"
}

// awaited is the incident that approving and vetoing act on: the subject, else
// the one whose action is approved and has not gone out.
func (m *Model) awaited() *page.State {
	s := m.subject()
	if s.Awaited() != nil || m.dialog.incident() != "" {
		return s
	}
	if other, ok := m.live.About(m.live.PendingFor()); ok {
		return other
	}
	return s
}
