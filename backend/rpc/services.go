package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/fleet"
)

// helloWait is how long an agent may take to introduce itself.
const helloWait = 10 * time.Second

// fleetService serves agents.
type fleetService struct {
	falconv1.UnimplementedFleetServer
	streams *fleet.Service
	renew   Signer
}

// Signer signs an agent's request for a new certificate; roots is what to trust
// from now on, PEM.
type Signer func(csr []byte, leaf *x509.Certificate) (cert, roots []byte, err error)

// Renew signs the caller's certificate again, where the engine may.
func (f *fleetService) Renew(ctx context.Context, q *falconv1.RenewRequest) (*falconv1.RenewReply, error) {
	caller := guestOf(ctx)
	if f.renew == nil || caller == nil {
		return nil, status.Error(
			codes.Unimplemented,
			"this engine does not renew certificates: set renew: true beside the authority's key, or issue one with falcon certs issue",
		)
	}
	cert, roots, err := f.renew(q.GetCsr(), caller.Leaf)
	switch {
	case errors.Is(err, auth.ErrRequest):
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		return nil, wireError(err)
	}
	return &falconv1.RenewReply{Certificate: cert, Roots: roots}, nil
}

func (f *fleetService) Attach(
	stream grpc.BidiStreamingServer[falconv1.AgentFrame, falconv1.EngineFrame],
) error {
	hello, err := receiveHello(stream)
	if err != nil {
		return err
	}
	id := identity(stream.Context())
	if hello.GetNode() != id.Name {
		return status.Errorf(codes.PermissionDenied,
			"the certificate speaks for node %s, not for the node that was named",
			id.Name)
	}
	return wireError(f.streams.Run(stream, hello))
}

// receiveHello bounds the wait for the first frame. The reader ends with the
// stream: at the latest when the handler has returned.
func receiveHello(
	stream grpc.BidiStreamingServer[falconv1.AgentFrame, falconv1.EngineFrame],
) (*falconv1.Hello, error) {
	type first struct {
		frame *falconv1.AgentFrame
		err   error
	}
	got := make(chan first, 1)
	go func() {
		f, err := stream.Recv()
		got <- first{f, err}
	}()
	timer := time.NewTimer(helloWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no hello within %s", helloWait)
	case f := <-got:
		if f.err != nil {
			return nil, f.err
		}
		if f.frame.GetHello() == nil {
			return nil, status.Error(codes.InvalidArgument, "the first frame must be a hello")
		}
		return f.frame.GetHello(), nil
	}
}

// consoleService serves operators.
type consoleService struct {
	falconv1.UnimplementedConsoleServer
	engine    *engine.Engine
	presence  *presence
	listening string // where agents attach
}

func actorOf(ctx context.Context) engine.Actor {
	id := identity(ctx)
	return engine.Actor{
		Name: id.Name,
		Role: string(id.Role),
		From: id.From,
	}
}

func (c *consoleService) Snapshot(
	ctx context.Context,
	q *falconv1.SnapshotRequest,
) (*falconv1.SnapshotReply, error) {
	if q.GetBrief() {
		r, err := engine.Brief(ctx, c.engine, actorOf(ctx))
		return r, wireError(err)
	}
	s, err := c.engine.Latest(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	c.presence.noteSeen(identity(ctx), q.GetSession(), q.GetAttending())
	if v := s.Reply.GetVersion(); v == q.GetKnownVersion() {
		return &falconv1.SnapshotReply{
			Version:   v,
			Unchanged: true,
			EngineId:  s.Reply.GetEngineId(),
			AtUnixNs:  s.Reply.GetAtUnixNs(),
			Operators: c.presence.operators(),
		}, nil
	}
	var series *falconv1.Series
	if q.GetColumns() > 0 {
		series, err = c.engine.Series(
			ctx,
			chosen(q, s),
			int(q.GetColumns()),
			int(q.GetRunLengths()),
		)
		if err != nil {
			return nil, wireError(err)
		}
	}
	out := s.For(actorOf(ctx), series)
	switch {
	case q.GetOwn():
		out = s.Own(actorOf(ctx), series)
	case q.GetPacked():
		out.Columns = c.engine.Columns(s, q.GetColumnsVersion())
	default:
		out.Ranks = s.Ranks.Views()
	}
	if q.GetRecent() > 0 {
		out.Recent, err = engine.RecentOf(ctx, c.engine, int(q.GetRecent()))
	}
	out.Operators, out.Listening = c.presence.operators(), c.listening
	return out, wireError(err)
}

func chosen(q *falconv1.SnapshotRequest, s *engine.State) falcon.Rank {
	if q.GetRank() < 0 {
		return s.Worst
	}
	return falcon.Rank(q.GetRank())
}

func (c *consoleService) Watch(
	q *falconv1.WatchRequest,
	stream grpc.ServerStreamingServer[falconv1.Event],
) error {
	w, err := c.engine.WatchAs(actorOf(stream.Context()), q.GetAfterSeq())
	if err != nil {
		return wireError(err)
	}
	defer w.Close()
	for {
		line, resync, err := w.Next(stream.Context())
		if err != nil {
			return wireError(err)
		}
		event := &falconv1.Event{Body: &falconv1.Event_Line{Line: line}}
		if resync {
			event.Body = &falconv1.Event_Resync{Resync: true}
		}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
}

func (c *consoleService) Decide(
	ctx context.Context,
	q *falconv1.DecideRequest,
) (*falconv1.DecideReply, error) {
	a, err := c.engine.Decide(ctx, actorOf(ctx), q)
	if err != nil {
		return nil, wireError(err)
	}
	return &falconv1.DecideReply{Action: a}, nil
}

func (c *consoleService) SetPolicy(
	ctx context.Context,
	q *falconv1.SetPolicyRequest,
) (*falconv1.SetPolicyReply, error) {
	mayLoosen := identity(ctx).Role.Covers(auth.RoleApprover)
	p, err := c.engine.SetPolicy(ctx, actorOf(ctx), mayLoosen, q.GetPolicy())
	if err != nil {
		return nil, wireError(err)
	}
	return &falconv1.SetPolicyReply{Policy: p}, nil
}

func (c *consoleService) Validate(
	ctx context.Context,
	q *falconv1.ValidateRequest,
) (*falconv1.ValidateReply, error) {
	v, err := c.engine.Validate(ctx, actorOf(ctx), q)
	if err != nil {
		return nil, wireError(err)
	}
	return &falconv1.ValidateReply{Validation: v}, nil
}

func (c *consoleService) Incidents(
	ctx context.Context,
	q *falconv1.IncidentsRequest,
) (*falconv1.IncidentsReply, error) {
	if q.GetOnlyValidations() {
		r, err := c.engine.Validations(ctx)
		return r, wireError(err)
	}
	r, err := c.engine.Incidents(ctx, q.GetId())
	return r, wireError(err)
}

func (c *consoleService) Recoveries(
	ctx context.Context,
	q *falconv1.RecoveriesRequest,
) (*falconv1.RecoveriesReply, error) {
	r, err := c.engine.Recoveries(ctx, q.GetId(), q.GetMap())
	return r, wireError(err)
}

func (c *consoleService) Recover(
	ctx context.Context,
	q *falconv1.RecoverRequest,
) (*falconv1.RecoverReply, error) {
	v, err := c.engine.Recover(ctx, actorOf(ctx), q)
	if err != nil {
		return nil, wireError(err)
	}
	return &falconv1.RecoverReply{Recovery: v}, nil
}

func (c *consoleService) History(
	ctx context.Context,
	q *falconv1.HistoryRequest,
) (*falconv1.HistoryReply, error) {
	r, err := engine.History(ctx, c.engine, q)
	return r, wireError(err)
}

// Triage takes down who looks after which incident.
func (c *consoleService) Triage(
	ctx context.Context,
	q *falconv1.TriageRequest,
) (*falconv1.TriageReply, error) {
	r, err := engine.Triage(ctx, c.engine, actorOf(ctx), q)
	return r, wireError(err)
}

// Peek has a node read what a rank has printed, and more.
func (c *consoleService) Peek(ctx context.Context, q *falconv1.PeekRequest) (*falconv1.PeekReply, error) {
	r, err := engine.Peek(
		ctx,
		c.engine,
		actorOf(ctx),
		identity(ctx).Role.Covers(auth.RoleApprover),
		q,
	)
	return r, wireError(err)
}

func (c *consoleService) Probe(ctx context.Context, q *falconv1.ProbeRequest) (*falconv1.ProbeReply, error) {
	r, err := engine.Probe(ctx, c.engine, actorOf(ctx), q)
	return r, wireError(err)
}

// wireError gives an error the code that clients act on; the text stays.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, engine.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, engine.ErrStale), errors.Is(err, engine.ErrRefused):
		code = codes.FailedPrecondition
	case errors.Is(err, engine.ErrInvalid):
		code = codes.InvalidArgument
	case errors.Is(err, engine.ErrDenied):
		code = codes.PermissionDenied
	case errors.Is(err, fleet.ErrFull), errors.Is(err, fleet.ErrSlow),
		errors.Is(err, fleet.ErrBudget), errors.Is(err, engine.ErrCrowded),
		errors.Is(err, engine.ErrBusy):
		code = codes.ResourceExhausted
	case errors.Is(err, fleet.ErrTwin):
		code = codes.AlreadyExists
	case errors.Is(err, fleet.ErrSuperseded), errors.Is(err, door.ErrReplaced):
		code = codes.Aborted
	case errors.Is(err, door.ErrRevoked), errors.Is(err, door.ErrExpired):
		code = codes.Unauthenticated
	case errors.Is(err, engine.ErrStopped), errors.Is(err, engine.ErrDisk),
		errors.Is(err, fleet.ErrClosed), errors.Is(err, door.ErrAge):
		code = codes.Unavailable
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
