package record

import (
	"context"
	"fmt"
	"sort"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Incidents is the incidents that the present state holds, id "" of
// all, each with the newest ladder that the recording has of it by then.
func (p *Player) Incidents(_ context.Context, id string) (*falconv1.IncidentsReply, error) {
	frame := p.Status().Frame
	out := &falconv1.IncidentsReply{}
	for _, i := range p.state.Load().Snap.GetIncidents() {
		if id != "" && i.Id != id {
			continue
		}
		l, err := p.r.ladder(i.Id, frame)
		if err != nil {
			return nil, err
		}
		out.Incidents = append(out.Incidents, i)
		out.Ladders = append(out.Ladders, l)
	}
	if id != "" && len(out.Incidents) == 0 {
		return nil, fmt.Errorf("%w: the recording knows no %s at this point", feed.ErrRefused, id)
	}
	return out, nil
}

// ladder is the newest one of an incident up to a frame; nil where none is.
func (r *Recording) ladder(incident string, frame int) (*falconv1.Ladder, error) {
	list := r.ladders[incident]
	n := sort.SearchInts(list, frame+1)
	if n == 0 {
		return nil, nil
	}
	e, err := decode(r.entries[r.Moments[list[n-1]].entry])
	if err != nil {
		return nil, err
	}
	snap := e.GetFrame().GetSnap()
	for _, l := range snap.GetOthers() {
		if l.GetIncident() == incident {
			return l, nil
		}
	}
	return snap.GetLadder(), nil
}

// Decide refuses, as all calls do.
func (p *Player) Decide(context.Context, *falconv1.DecideRequest) (*falconv1.Action, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// Validate refuses.
func (p *Player) Validate(context.Context, *falconv1.ValidateRequest) (*falconv1.Validation, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// SetPolicy refuses.
func (p *Player) SetPolicy(context.Context, *falconv1.Policy) (*falconv1.Policy, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// Freeze refuses.
func (p *Player) Freeze(context.Context) (*falconv1.Policy, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// Recover refuses.
func (p *Player) Recover(context.Context, *falconv1.RecoverRequest) (*falconv1.Recovery, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// Triage refuses.
func (p *Player) Triage(context.Context, *falconv1.TriageRequest) (*falconv1.TriageReply, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}

// Peek refuses.
func (p *Player) Peek(context.Context, *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	return nil, fmt.Errorf("%w: %w", feed.ErrRefused, ErrRecording)
}
