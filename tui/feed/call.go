package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// ErrUnreachable is wrapped by calls without an answer: whether they took effect is unknown.
var ErrUnreachable = errors.New("feed: engine unreachable")

// ErrRefused is wrapped by calls that the engine answered with no.
var ErrRefused = errors.New("feed: refused")

// freezeTries bounds how often Freeze reads the policy again after it was changed.
const freezeTries = 3

// caller submits what one operator decides, by that operator's own client: the
// engine proves who it is and checks the role.
type caller struct {
	client    falconv1.ConsoleClient
	seen      func() *falconv1.Policy // the policy in the newest picture
	pullNow   func()                  // something has probably changed
	recovered func()                  // so have recoveries
}

// request makes one call within its time limit and cleans the reply and the error's text.
func request[Q, R proto.Message](
	ctx context.Context,
	call func(context.Context, Q, ...grpc.CallOption) (R, error),
	q Q,
) (reply R, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	got, err := call(ctx, q)
	if err != nil {
		return reply, explain(err)
	}
	clean.Message(got)
	return got, nil
}

// Decide submits one decision. The engine checks plan hash, job epoch and the
// caller's role; the error's text is fit to be shown.
func (c *caller) Decide(ctx context.Context, r *falconv1.DecideRequest) (*falconv1.Action, error) {
	reply, err := request(ctx, c.client.Decide, r)
	c.pullNow()
	return reply.GetAction(), err
}

// SetPolicy submits a policy based on the version that it carries.
func (c *caller) SetPolicy(ctx context.Context, p *falconv1.Policy) (*falconv1.Policy, error) {
	reply, err := request(ctx, c.client.SetPolicy, &falconv1.SetPolicyRequest{Policy: p})
	c.pullNow()
	return reply.GetPolicy(), err
}

// Validate asks for a test of ranks or links, or ends one; the engine checks
// the caller's role and whether the job can be held now.
func (c *caller) Validate(ctx context.Context, r *falconv1.ValidateRequest) (*falconv1.Validation, error) {
	reply, err := request(ctx, c.client.Validate, r)
	c.pullNow()
	return reply.GetValidation(), err
}

// Recover decides on a recovery, or asks for one by hand; the engine checks
// plan hash, state and the caller's role.
func (c *caller) Recover(ctx context.Context, r *falconv1.RecoverRequest) (*falconv1.Recovery, error) {
	reply, err := request(ctx, c.client.Recover, r)
	c.pullNow()
	c.recovered()
	return reply.GetRecovery(), err
}

// Triage acknowledges, snoozes, assigns or annotates an incident, or hands all open ones
// over; the engine checks the caller's role.
func (c *caller) Triage(ctx context.Context, r *falconv1.TriageRequest) (*falconv1.TriageReply, error) {
	reply, err := request(ctx, c.client.Triage, r)
	c.pullNow()
	return reply, err
}

// Peek has a node read what a rank has printed, where its threads stand, or the kernel's
// lines; the engine checks the caller's role.
func (c *caller) Peek(ctx context.Context, r *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	return request(ctx, c.client.Peek, r)
}

// Incidents asks for incidents as a whole, older ones too: all, or the one named.
func (c *caller) Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error) {
	return request(ctx, c.client.Incidents, &falconv1.IncidentsRequest{Id: id})
}

// Freeze stops new actions whatever the policy's version is: the safe direction never loses a race.
func (c *caller) Freeze(ctx context.Context) (*falconv1.Policy, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	p := c.seen()
	for try := 1; ; try++ {
		frozen := &falconv1.Policy{}
		if p != nil {
			frozen = proto.CloneOf(p) // all else of it stays, or an operator would be refused
		}
		frozen.Frozen = true
		got, err := c.SetPolicy(ctx, frozen)
		if err == nil || try == freezeTries || !errors.Is(err, ErrRefused) {
			return got, err
		}
		fresh, pullErr := c.client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: WorstRank})
		if pullErr != nil {
			return nil, explain(pullErr)
		}
		p = fresh.GetPolicy()
	}
}

func explain(err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%w: %s", ErrUnreachable, Reason(err))
	default:
		return fmt.Errorf("%w: %s", ErrRefused, Reason(err))
	}
}

// Said is an error of this package as operators read it: whose word it is does not matter there.
func Said(err error) string {
	text := Reason(err)
	for cut := true; cut; {
		cut = false
		for _, p := range []string{"feed: ", "refused: ", "engine: "} {
			if rest, is := strings.CutPrefix(text, p); is {
				text, cut = rest, true
			}
		}
	}
	return text
}

// Reason is what the other side said, cleaned, without gRPC's wrapping.
func Reason(err error) string {
	if s, ok := status.FromError(err); ok {
		if s.Code() == codes.DeadlineExceeded {
			return "no answer in time"
		}
		return clean.String(s.Message())
	}
	return clean.String(err.Error())
}
