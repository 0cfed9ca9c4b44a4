package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/history"
)

// Bounds of one sampling job.
const (
	probeNodesMost = 64
	probeMost      = 24 * time.Hour
)

// probeKeeper says whether a sampling job may be started. It starts none itself, and
// allows one at a time: an engine watches one job.
type probeKeeper struct {
	*shared

	allowed []falcon.Node // of the one that was allowed last
	by      string
	until   time.Time // it may still run, or be about to start
}

// Probe has an engine allow a sampling job on some nodes, or ends what was allowed. It answers once
// the audit line is durable. It is refused (ErrRefused) where the engine watches training,
// where a node is not there, is fenced or holds a process, and while another one is
// allowed. Nothing is kept over a restart of the engine: processes that run are seen
// again.
func Probe(
	ctx context.Context,
	e *Engine,
	who Actor,
	q *falconv1.ProbeRequest,
) (*falconv1.ProbeReply, error) {
	var out *falconv1.ProbeReply
	err := e.decideInLoop(ctx, func() (refused error) {
		if q.GetEnd() {
			return e.probes.end(who)
		}
		out, refused = e.probes.allow(who, q)
		return refused
	})
	if err == nil && out == nil {
		out = &falconv1.ProbeReply{}
	}
	return out, err
}

func (p *probeKeeper) end(who Actor) error {
	if p.by != who.Name {
		return nil // it has run out, or is another's
	}
	p.allowed = nil
	p.by = ""
	p.until = time.Time{}
	return nil
}

func (p *probeKeeper) allow(who Actor, q *falconv1.ProbeRequest) (*falconv1.ProbeReply, error) {
	now, kind, span := p.cfg.Now(), history.Kind(q.GetKind()), time.Duration(q.GetForNs())
	nodes, err := probeNodes(kind, q.GetNodes())
	switch {
	case err != nil:
		return nil, err
	case span <= 0 || span > probeMost:
		return nil, fmt.Errorf("%w: a sampling job may last up to %s, not %s", ErrInvalid, probeMost, span)
	}
	if err := p.obstacle(now, kind, nodes); err != nil {
		return nil, err
	}
	p.allowed = nodes
	p.by = who.Name
	p.until = now.Add(span)
	p.oplog.audit(now, who, auditEntry{
		Verb:  "probe",
		About: joinNodes(nodes),
		Reason: clean(fmt.Sprintf("%s for at most %s: %s",
			kindText(kind), span, q.GetReason())),
	})
	return &falconv1.ProbeReply{DeadlineUnixNs: p.until.UnixNano()}, nil
}

// obstacle is why no sampling job of a kind may start on nodes now.
func (p *probeKeeper) obstacle(now time.Time, kind history.Kind, nodes []falcon.Node) error {
	switch {
	case p.cfg.JobKind == "":
		return fmt.Errorf(
			"%w: this engine watches training; sampling jobs need an engine and agents of their own, with probe: %s in its falcon.yaml",
			ErrRefused, kind,
		)
	case p.cfg.JobKind != kind:
		return fmt.Errorf("%w: this engine watches %s, not %s: its falcon.yaml says probe: %s",
			ErrRefused, kindText(p.cfg.JobKind), kindText(kind), p.cfg.JobKind)
	case p.plan.Policy().Frozen:
		return fmt.Errorf("%w: the policy is frozen: no sampling job is started until it is unfrozen",
			ErrRefused)
	case now.Before(p.until):
		return fmt.Errorf("%w: %s may run one on %s until %s UTC",
			ErrRefused, p.by, joinNodes(p.allowed), p.until.UTC().Format(time.TimeOnly))
	}
	for _, n := range nodes {
		if why := p.unfit(now, n); why != "" {
			return fmt.Errorf("%w: node %s %s", ErrRefused, n, why)
		}
	}
	if name := p.running(""); name != "" {
		return fmt.Errorf("%w: process %s of a job still runs, and an engine watches one job",
			ErrRefused, name)
	}
	return nil
}

// unfit is why nothing may be started on a node, "" = nothing.
func (p *probeKeeper) unfit(now time.Time, name falcon.Node) string {
	n := p.nodes.Node(name)
	switch {
	case n == nil || !n.Connected():
		return "has no agent at this engine: start falcon-agent there"
	case n.Age(now) > staleAfter:
		return fmt.Sprintf("was last heard %s ago", n.Age(now).Round(time.Second))
	case p.state.fences.nodeFenced(name):
		return "is fenced: lift the fence first"
	}
	if process := p.running(name); process != "" {
		return "is not idle: it runs process " + process
	}
	return ""
}

// running is a live process on a node, or on any for "".
func (p *probeKeeper) running(on falcon.Node) string {
	for _, name := range sortedKeys(p.job.named) {
		x := p.job.named[name]
		if x.state.GetAlive() && (on == "" || x.node == on) {
			return name
		}
	}
	return ""
}

// probeNodes are the nodes of a sampling job of a kind.
func probeNodes(kind history.Kind, names []string) ([]falcon.Node, error) {
	var out []falcon.Node
	for _, n := range names {
		if n == "" || slices.Contains(out, falcon.Node(n)) {
			return nil, fmt.Errorf("%w: name each node once", ErrInvalid)
		}
		out = append(out, falcon.Node(n))
	}
	switch {
	case kind == history.ProbeA && len(out) == 1,
		kind == history.ProbeB && len(out) >= 2 && len(out) <= probeNodesMost:
		return out, nil
	case kind == history.ProbeA:
		return nil, fmt.Errorf("%w: a sampling job of kind a runs on one node, not on %d",
			ErrInvalid, len(out))
	case kind == history.ProbeB:
		return nil, fmt.Errorf("%w: a sampling job of kind b runs on 2 to %d nodes, not on %d",
			ErrInvalid, probeNodesMost, len(out))
	}
	return nil, fmt.Errorf("%w: kind %q is neither a (one node) nor b (several)",
		ErrInvalid, clean(string(kind)))
}

func kindText(k history.Kind) string {
	if k == history.ProbeA {
		return "sampling jobs of one node"
	}
	return "sampling jobs of several nodes"
}

func joinNodes(nodes []falcon.Node) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = clean(string(n))
	}
	return strings.Join(out, ",")
}
