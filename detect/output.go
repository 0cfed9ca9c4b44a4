package detect

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// clock is the time of the newest input.
type clock struct{ now time.Time }

func (k *clock) set(now time.Time) {
	k.now = now
}

// output is what inputs have led to since the last Advance.
type output struct {
	changed map[string]falcon.Incident
	updates int      // of incidents, since the start
	order   []string // ids of changed, in the order of their first change
	ready   Ready
}

func (o *output) addNote(about string, iteration int64, kind, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{
		Iteration: iteration,
		About:     about,
		Kind:      kind,
		Text:      fmt.Sprintf(format, args...),
	})
}

// updateIncident hands an incident's present state out with the next Ready.
func (o *output) updateIncident(s *incidentState) {
	o.updates++
	if _, ok := o.changed[s.ID]; !ok {
		o.order = append(o.order, s.ID)
	}
	inc := s.Incident
	inc.Verdict.Devices = slices.Clone(inc.Verdict.Devices)
	inc.Verdict.Ranks = slices.Clone(inc.Verdict.Ranks)
	inc.Verdict.Links = slices.Clone(inc.Verdict.Links)
	inc.Verdict.Evidence = slices.Clone(inc.Verdict.Evidence)
	o.changed[s.ID] = inc
}

// pending is everything since the last clear.
func (o *output) pending() Ready {
	r := o.ready
	r.Incidents = nil
	for _, id := range o.order {
		r.Incidents = append(r.Incidents, o.changed[id])
	}
	return r
}

func (o *output) clear() {
	o.ready = Ready{}
	o.order = nil
	clear(o.changed)
}

func (o *output) addAsk(a falcon.ValidationAsk) {
	o.ready.Asks = append(o.ready.Asks, a)
}

func (o *output) addComparison(c Comparison) {
	o.ready.Compare = &c
}

func (o *output) addRequest(r ProfileRequest) {
	o.ready.Requests = append(o.ready.Requests, r)
}
