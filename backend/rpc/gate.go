package rpc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
)

// Limits bound what callers may ask for; zero values mean the defaults.
type Limits struct {
	door.Limits

	CallsPerS int           // of one identity, 50; four seconds of it at once
	InFlight  int           // calls of one identity that are not answered yet, streams apart, 16
	Streams   int           // of one identity, 32
	CallMost  time.Duration // how long a call of a remote caller may take, 60 s
	StreamAge time.Duration // how old a stream may become, 24 h
}

func (l Limits) withDefaults() Limits {
	l.CallsPerS = cmp.Or(l.CallsPerS, 50)
	l.InFlight = cmp.Or(l.InFlight, 16)
	l.Streams = cmp.Or(l.Streams, 32)
	l.CallMost = cmp.Or(l.CallMost, 60*time.Second)
	l.StreamAge = cmp.Or(l.StreamAge, 24*time.Hour)
	return l
}

// Load says which calls an engine that is short of memory refuses.
type Load interface {
	NoWatches() bool   // new ones
	NoSnapshots() bool // of viewers
}

// gate decides about a call from its headers, before its message is read; an
// interceptor then answers.
type gate struct {
	limits Limits
	load   Load // nil = never short of memory
	log    *slog.Logger
	panics atomic.Int64

	mu      sync.Mutex
	callers *lru.Cache[string, *caller]
}

// caller is one identity's share.
type caller struct {
	calls   *rate.Limiter
	pending atomic.Int32
	streams atomic.Int32
}

// callersMost bounds how many identities the gate remembers.
const callersMost = 1 << 15

func newGate(cfg Config) *gate {
	callers, _ := lru.New[string, *caller](callersMost) // fails for no size below 1
	g := &gate{
		limits:  cfg.Limits.withDefaults(),
		load:    cfg.Load,
		log:     cfg.Log,
		callers: callers,
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g
}

func (g *gate) caller(id auth.Identity) *caller {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := string(id.Role) + "/" + id.Name
	c, ok := g.callers.Get(key)
	if !ok {
		c = &caller{calls: rate.NewLimiter(rate.Limit(g.limits.CallsPerS), 4*g.limits.CallsPerS)}
		g.callers.Add(key, c)
	}
	return c
}

// streaming are the methods whose calls last.
var streaming = map[string]bool{
	falconv1.Fleet_Attach_FullMethodName:  true,
	falconv1.Console_Watch_FullMethodName: true,
}

// refusedKey is the context's key of why the call is refused.
type refusedKey struct{}

// How long a refused call may take to send its message, which is not read.
// Those of agents may be as large as a frame.
const (
	refusedMost      = 5 * time.Second
	refusedMostAgent = 200 * time.Millisecond
)

// refuse leaves the error to the interceptors. gRPC never cancels the context of
// a call that its tap refuses: one with a deadline of years would keep its timer
// and a third of a KiB for as long.
func refuse(ctx context.Context, method string, err error) context.Context {
	most := refusedMost
	if method == falconv1.Fleet_Renew_FullMethodName {
		most = refusedMostAgent
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, refusedKey{}, err), most)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// ownerTap is the tap of the owner's socket: it checks the role and bounds nothing,
// so that the owner is heard whatever others do.
func (g *gate) ownerTap(ctx context.Context, info *tap.Info) (context.Context, error) {
	out, err := admitRole(ctx, info.FullMethodName)
	if err != nil {
		out = refuse(ctx, info.FullMethodName, err)
	}
	return out, nil
}

// guestTap is the tap of everybody else.
func (g *gate) guestTap(ctx context.Context, info *tap.Info) (context.Context, error) {
	out, err := g.admitCall(ctx, info.FullMethodName)
	if err == nil {
		return out, nil
	}
	if caller := guestOf(ctx); caller != nil {
		caller.Refused()
	}
	return refuse(ctx, info.FullMethodName, err), nil
}

func (g *gate) admitCall(ctx context.Context, method string) (context.Context, error) {
	if _, known := needs[method]; !known {
		return ctx, nil // gRPC answers that there is no such method
	}
	if caller := guestOf(ctx); caller != nil && caller.Context().Err() != nil {
		return ctx, status.Error(codes.Unavailable, context.Cause(caller.Context()).Error())
	}
	ctx, err := admitRole(ctx, method)
	if err != nil {
		return ctx, err
	}
	id := identity(ctx)
	if err := g.refuseUnderPressure(id, method); err != nil {
		return ctx, err
	}
	return g.countCall(ctx, id, method)
}

// refuseUnderPressure refuses what an engine short of memory leaves out.
func (g *gate) refuseUnderPressure(id auth.Identity, method string) error {
	if g.load == nil {
		return nil
	}
	const advice = "the engine is short of memory and %s; try again later, or raise memory_limit"
	if method == falconv1.Console_Watch_FullMethodName && g.load.NoWatches() {
		return status.Errorf(codes.Unavailable, advice, "takes no new watches")
	}
	if method == falconv1.Console_Snapshot_FullMethodName &&
		id.Role == auth.RoleViewer &&
		g.load.NoSnapshots() {
		return status.Errorf(codes.Unavailable, advice, "answers no viewers")
	}
	return nil
}

// countCall takes the call's place among those of its caller, until it ends.
func (g *gate) countCall(ctx context.Context, id auth.Identity, method string) (context.Context, error) {
	c := g.caller(id)
	if !c.calls.Allow() {
		return ctx, status.Errorf(codes.ResourceExhausted, "%s makes more than %d calls a second: slow down",
			id.Name, g.limits.CallsPerS)
	}
	places, most := &c.pending, g.limits.InFlight
	cancel := func() {}
	if streaming[method] {
		places, most = &c.streams, g.limits.Streams
	} else {
		ctx, cancel = context.WithTimeout(ctx, g.limits.CallMost)
	}
	if method == falconv1.Fleet_Renew_FullMethodName {
		most = 1 // its message may be as large as a frame
	}
	if int(places.Add(1)) > most {
		places.Add(-1)
		cancel()
		return ctx, status.Errorf(codes.ResourceExhausted,
			"%s has %d calls open already: wait for their answers",
			id.Name, most)
	}
	context.AfterFunc(ctx, func() {
		places.Add(-1)
		cancel()
	})
	return ctx, nil
}

func guestOf(ctx context.Context) *door.Peer {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	g, _ := p.AuthInfo.(*door.Peer)
	return g
}

// unaryInterceptor ends a call that panics, alone.
func (g *gate) unaryInterceptor(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (_ any, err error) {
	defer g.recovered(info.FullMethod, &err)
	if ctx, err = passed(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// stream does the same, and ends a stream with its certificate.
func (g *gate) stream(
	srv any,
	ss grpc.ServerStream,
	info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) (err error) {
	defer g.recovered(info.FullMethod, &err)
	ctx, err := passed(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if caller := guestOf(ctx); caller != nil {
		var stop context.CancelFunc
		ctx, stop = caller.Stream(ctx, g.limits.StreamAge, time.Now())
		defer stop()
	}
	return next(srv, gatedStream{ServerStream: ss, ctx: ctx})
}

// passed is the call's context as the tap has left it, or its refusal; a call
// that came past the tap is checked here.
func passed(ctx context.Context, method string) (context.Context, error) {
	if err, refused := ctx.Value(refusedKey{}).(error); refused {
		return ctx, err
	}
	if _, ok := ctx.Value(identityKey{}).(auth.Identity); ok {
		return ctx, nil
	}
	if _, known := needs[method]; !known {
		return ctx, nil // for elsewhere
	}
	return admitRole(ctx, method)
}

// elsewhere answers calls of methods that the server does not have, once the
// interceptor has let them by.
func elsewhere(_ any, ss grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(ss)
	return status.Errorf(codes.Unimplemented, "there is no method %q here", method)
}

// recovered turns a panic into the call's error: one bad call ends alone.
func (g *gate) recovered(method string, err *error) {
	r := recover()
	if r == nil {
		return
	}
	g.panics.Add(1)
	g.log.Error(
		"a call panicked",
		slog.String("method", method),
		slog.String("panic", strings.ToValidUTF8(fmt.Sprint(r), "?")),
		slog.String("stack", string(debug.Stack())),
	)
	*err = status.Error(codes.Internal, "the call failed inside the engine; its log says where")
}

type gatedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s gatedStream) Context() context.Context { return s.ctx }
