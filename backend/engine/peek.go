package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// Bounds of what people have read on nodes.
const (
	peekWithin   = 4 * time.Second // an agent's answer
	peeksOfNode  = 2               // that wait for one agent
	peeksMost    = 32              // that wait in all
	peeksBurst   = 10              // of one person at once
	peekEvery    = 2 * time.Second // and one more of them after this long
	peekLines    = 200             // of one source
	peekParts    = 36
	peekPeople   = 256 // whose budgets are kept
	peekLineMost = 2048
)

// ErrBusy is returned for what may be asked again in a moment.
var ErrBusy = errors.New("engine: busy")

// What can be read.
const (
	peekLog    = "log"
	peekStack  = "stack"
	peekKernel = "kernel"
	peekNode   = "node" // all of a node that an autopsy needs
)

// peekRequests has agents read what people ask for. Nothing that is read is persisted, only
// who asked for what; no decision is made on it.
type peekRequests struct {
	*shared

	newest  uint64
	waiting map[uint64]*peeking
	people  map[string]*rate.Limiter
}

// peeking is one request that waits for an agent.
type peeking struct {
	node   falcon.Node
	answer chan *falconv1.Peeked // has room for one
}

func newPeekRequests(s *shared) *peekRequests {
	return &peekRequests{
		shared:  s,
		waiting: map[uint64]*peeking{},
		people:  map[string]*rate.Limiter{},
		newest:  uint64(max(s.cfg.Now().UnixNano(), 0)), // a late answer to an earlier engine finds nothing
	}
}

// Peek has the agent of a node read something, and returns it. That it was asked for, and by
// whom, is durable before the agent is asked. ErrRefused where no agent could answer or
// it has refused, ErrInvalid and ErrNotFound for what is not there, ErrBusy beyond
// the bounds, ErrDenied where a stack needs an approver.
func Peek(
	ctx context.Context,
	e *Engine,
	who Actor,
	mayStack bool,
	q *falconv1.PeekRequest,
) (*falconv1.PeekReply, error) {
	d := e.peeks
	var out *falconv1.PeekReply
	var p *peeking
	var id uint64
	err := e.decideInLoop(ctx, func() (refused error) {
		out, p, refused = d.admit(who, mayStack, q)
		return refused
	})
	if err != nil {
		return nil, err
	}
	err = e.readInLoop(ctx, func() { id = d.ask(p, q) })
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = e.readInLoop(context.WithoutCancel(ctx), func() {
			delete(d.waiting, id)
		})
	}()
	if id == 0 {
		return nil, fmt.Errorf("%w: the agent of %s has just left", ErrRefused, p.node)
	}
	answer, err := p.await(ctx)
	if err != nil {
		return nil, err
	}
	out.AtUnixNs = e.cfg.Now().UnixNano()
	out.Parts = cleanParts(answer.GetParts())
	return out, nil
}

func (p *peeking) await(ctx context.Context) (*falconv1.Peeked, error) {
	timer := time.NewTimer(peekWithin)
	defer timer.Stop()
	select {
	case a := <-p.answer:
		if why := clean(a.GetRefused()); why != "" {
			return nil, fmt.Errorf("%w: node %s: %s", ErrRefused, p.node, why)
		}
		return a, nil
	case <-timer.C:
		return nil, fmt.Errorf(
			"%w: the agent of %s has not answered within %s: the file may be on a file system that does not answer",
			ErrRefused, p.node, peekWithin,
		)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// admit checks a request and writes down who made it.
func (d *peekRequests) admit(
	who Actor,
	mayStack bool,
	q *falconv1.PeekRequest,
) (*falconv1.PeekReply, *peeking, error) {
	now := d.cfg.Now()
	out, about, err := d.target(now, q)
	switch {
	case err != nil:
		return nil, nil, err
	case q.GetWhat() == peekStack && !mayStack:
		return nil, nil, fmt.Errorf("%w: a stack needs the role approver and %s has the role %s",
			ErrDenied, clean(who.Name), clean(who.Role))
	}
	p := &peeking{
		node:   falcon.Node(out.GetNode()),
		answer: make(chan *falconv1.Peeked, 1),
	}
	if err := d.reachable(now, p.node); err != nil {
		return nil, nil, err
	}
	if err := d.affordable(now, who, p.node); err != nil {
		return nil, nil, err
	}
	d.oplog.audit(now, who, auditEntry{
		Verb:   "peek",
		About:  about,
		Reason: q.GetWhat(),
	})
	return out, p, nil
}

// target is whose node is asked.
func (d *peekRequests) target(
	now time.Time,
	q *falconv1.PeekRequest,
) (out *falconv1.PeekReply, about string, err error) {
	switch q.GetWhat() {
	case peekLog, peekStack:
		return d.rankTarget(
			now,
			falcon.Rank(q.GetRank()),
			falcon.Node(clean(q.GetNode())),
		)
	case peekKernel, peekNode:
		name := clean(q.GetNode())
		if d.nodes.Node(falcon.Node(name)) == nil {
			return nil, "", fmt.Errorf("%w: no agent of a node %q has been here", ErrNotFound, name)
		}
		return &falconv1.PeekReply{Node: name, Rank: -1}, name, nil
	}
	return nil, "", fmt.Errorf("%w: %q is neither %s, %s, %s nor %s",
		ErrInvalid, clean(q.GetWhat()), peekLog, peekStack, peekKernel, peekNode)
}

// rankTarget is the node of a rank, or another one that has had it before.
func (d *peekRequests) rankTarget(
	now time.Time,
	r falcon.Rank,
	node falcon.Node,
) (out *falconv1.PeekReply, about string, err error) {
	p := d.job.ranks[r]
	switch {
	case p == nil:
		return nil, "", fmt.Errorf("%w: no agent knows a rank %d", ErrNotFound, r)
	case node != "" && node != p.node:
		return &falconv1.PeekReply{
				Node:  string(node),
				Rank:  int32(r),
				State: "now on " + string(p.node),
			},
			fmt.Sprintf("%s on %s", falcon.RankSubject(r), node),
			nil
	}
	return &falconv1.PeekReply{
		Node:  string(p.node),
		Rank:  int32(r),
		State: processText(now, p),
	}, falcon.RankSubject(r), nil
}

func processText(now time.Time, p *process) string {
	pid := p.state.GetPid()
	if p.state.GetAlive() {
		return fmt.Sprintf("process %d runs", pid)
	}
	text := fmt.Sprintf("process %d has ended", pid)
	if !p.endedAt.IsZero() {
		text += fmt.Sprintf(" %s ago", now.Sub(p.endedAt).Round(time.Second))
	}
	return text + exitText(p.state.GetExit())
}

// reachable is why a node's agent can't be asked.
func (d *peekRequests) reachable(now time.Time, name falcon.Node) error {
	n := d.nodes.Node(name)
	switch {
	case n == nil:
		return fmt.Errorf("%w: no agent of node %s has been here", ErrRefused, name)
	case !n.Connected():
		return fmt.Errorf("%w: the agent of %s is away, last heard %s ago",
			ErrRefused, name, n.Age(now).Round(time.Second))
	case n.Session.Hello.GetProtocol() < falconv1.PeekRevision:
		return fmt.Errorf("%w: the agent of %s is too old for this (version %s): update it",
			ErrRefused, name, clean(n.Session.Hello.GetVersion()))
	}
	return nil
}

// affordable bounds what waits, and what one person may ask for.
func (d *peekRequests) affordable(now time.Time, who Actor, node falcon.Node) error {
	ofNode := 0
	for _, w := range d.waiting {
		if w.node == node {
			ofNode++
		}
	}
	if ofNode >= peeksOfNode || len(d.waiting) >= peeksMost {
		return fmt.Errorf("%w: others have just asked for the same of %s: try again in some seconds",
			ErrBusy, node)
	}
	b := d.people[who.Name]
	if b == nil {
		if len(d.people) >= peekPeople {
			clear(d.people)
		}
		b = rate.NewLimiter(rate.Every(peekEvery), peeksBurst)
		d.people[who.Name] = b
	}
	if !b.AllowN(now, 1) {
		return fmt.Errorf("%w: you have asked %d times within seconds: wait %s",
			ErrBusy, peeksBurst, peekEvery)
	}
	return nil
}

// ask sends the question; 0 where the agent has left meanwhile.
func (d *peekRequests) ask(p *peeking, q *falconv1.PeekRequest) uint64 {
	n := d.nodes.Node(p.node)
	if n == nil || !n.Connected() {
		return 0
	}
	d.newest++
	d.waiting[d.newest] = p
	n.Session.Send(&falconv1.EngineFrame{Body: &falconv1.EngineFrame_Peek{Peek: &falconv1.Peek{
		Id:    d.newest,
		What:  q.GetWhat(),
		Rank:  q.GetRank(),
		Lines: min(max(q.GetLines(), 0), peekLines),
		Sure:  q.GetSure(),
	}}})
	return d.newest
}

// onPeeked takes an agent's answer; one that no person waits for is dropped.
func (d *peekRequests) onPeeked(n *fleet.Node, in *falconv1.Peeked) {
	p := d.waiting[in.GetPeek()]
	if p == nil || p.node != n.Name {
		return
	}
	select {
	case p.answer <- in:
	default:
	}
}

// cleanParts bounds and cleans what an agent has sent, which may be anything.
func cleanParts(in []*falconv1.PeekPart) []*falconv1.PeekPart {
	var out []*falconv1.PeekPart
	for _, p := range in[:min(len(in), peekParts)] {
		c := &falconv1.PeekPart{
			Source:        clean(p.GetSource()),
			Path:          clean(p.GetPath()),
			Note:          clean(p.GetNote()),
			ChangedUnixNs: max(p.GetChangedUnixNs(), 0),
			Bytes:         max(p.GetBytes(), 0),
			Owner:         max(p.GetOwner(), 0),
		}
		for _, l := range p.GetLines()[:min(len(p.GetLines()), peekLines)] {
			c.Lines = append(c.Lines, cleanWithin(l, peekLineMost))
		}
		out = append(out, c)
	}
	return out
}
