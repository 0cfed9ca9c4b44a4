package feed

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Source is what a console needs of a feed, which may be a Feed, a Session or a wrapper.
type Source interface {
	Latest() *State
	Changed() <-chan struct{}
	Done() <-chan struct{}
	Ask(Want)
	Blur(bool)
	Decide(context.Context, *falconv1.DecideRequest) (*falconv1.Action, error)
	Validate(context.Context, *falconv1.ValidateRequest) (*falconv1.Validation, error)
	SetPolicy(context.Context, *falconv1.Policy) (*falconv1.Policy, error)
	Freeze(context.Context) (*falconv1.Policy, error)
	Recover(context.Context, *falconv1.RecoverRequest) (*falconv1.Recovery, error)
	Triage(context.Context, *falconv1.TriageRequest) (*falconv1.TriageReply, error)
	Peek(context.Context, *falconv1.PeekRequest) (*falconv1.PeekReply, error)
	Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error)
}

// Shallow copies a message's fields, not what they point at: a snapshot of
// 100,000 ranks is never copied as a whole.
func Shallow[M proto.Message](m M) M {
	to := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	return to.Interface().(M)
}

// TriageOf is who looks after an incident, nil where no one has said anything.
func TriageOf(s *falconv1.SnapshotReply, incident string) *falconv1.Triage {
	for _, v := range s.GetTriage() {
		if v.GetIncident() == incident {
			return v
		}
	}
	return nil
}
