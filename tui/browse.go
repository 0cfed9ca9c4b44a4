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

// browsing is an incident that is looked at in the present one's place, on the
// pages that show incidents. It is for reading: header, proposal bar and
// dialogs stay with the present one.
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

// renew asks again for an incident whose fault lasts, and ends browsing when
// the incident has become the present one.
func (m *Model) renew() tea.Cmd {
	if m.look == nil {
		return nil
	}
	if present := m.live.Incident(); present != nil && present.Id == m.look.id {
		m.look = nil
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

// drawn is the state that a page draws: the one that shows the incident looked
// at where there is one.
func (m *Model) drawnState(on key.Scope) *page.State {
	if m.look == nil || on != key.Ladder && on != key.Overview {
		return m.state
	}
	return m.state.Showing(m.look.reply)
}

// lookBanner says that what is on the page is only to be read.
func (m *Model) lookBanner() string {
	if m.look == nil || m.current != key.Ladder && m.current != key.Overview {
		return ""
	}
	place := ""
	if i := m.listed(m.look.id); i >= 0 {
		place = fmt.Sprintf(" (%d of %d)", i+1, len(m.live.Snap().Incidents))
	}
	return m.put(themes.Urgent, " "+m.look.id+place+", to read only; "+m.table.Name(key.NewerIncident, key.Overview)+" newer ")
}

// readOnly says why nothing can be decided on the incident on screen, or "".
func (m *Model) readOnly() string {
	if m.look == nil {
		return ""
	}
	return m.look.id + " is shown to read; " + m.table.Name(key.Why, key.Global) + " goes back to the present incident"
}
