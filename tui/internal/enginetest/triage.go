package enginetest

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// shift is the part of the engine that takes down who looks after its incident.
type shift struct {
	engine *Engine
	said   []*falconv1.TriageRequest
	looked *falconv1.Triage // nil = no one has said anything
}

// Said lists every word on who looks after an incident that was received.
func (h *shift) Said() []*falconv1.TriageRequest {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	return append([]*falconv1.TriageRequest(nil), h.said...)
}

// Triage takes down what is said of the incident, as the engine does.
func (h *shift) Triage(_ context.Context, q *falconv1.TriageRequest) (*falconv1.TriageReply, error) {
	e := h.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	h.said = append(h.said, q)
	if e.refuse != "" {
		return nil, status.Error(codes.FailedPrecondition, e.refuse)
	}
	e.turns++
	now := e.opts.at(e.iter)
	if h.looked == nil {
		h.looked = &falconv1.Triage{Incident: "INC-0001"}
	}
	t := h.looked
	switch q.GetVerb() {
	case "ack":
		t.AckedBy = "maria"
		t.AckedUnixNs = now.UnixNano()
	case "snooze":
		t.SnoozedBy = "maria"
		t.SnoozedUntilUnixNs = now.Add(time.Duration(q.GetForNs())).UnixNano()
		t.Quiet = true
	case "wake":
		t.SnoozedUntilUnixNs, t.Quiet = 0, false
	case "assign", "handover":
		t.Owner = q.GetTo()
	}
	if q.GetText() != "" {
		t.NoteCount++
		t.Notes = []*falconv1.TriageNote{{
			By:     "maria",
			UnixNs: now.UnixNano(),
			Text:   q.GetText() + e.hostile,
		}}
	}
	return &falconv1.TriageReply{Triage: []*falconv1.Triage{t}, AtUnixNs: now.UnixNano()}, nil
}
