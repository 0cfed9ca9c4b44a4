package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/validate"
)

// Bounds of one request for tests.
const (
	testedRanksMax  = 4096
	testedLinksMax  = 256
	gemmSideMost    = 16384
	messageMost     = 1 << 30
	validationsMost = 64 // in one reply
)

// Validate holds the job for the tests asked for, or releases it again. It
// answers once the validation has begun, or is promised and waits for something
// that passes (at most askPatience), or is refused (ErrRefused, with the
// reason); how it goes on is in the snapshot.
func (e *Engine) Validate(
	ctx context.Context,
	who Actor,
	q *falconv1.ValidateRequest,
) (*falconv1.Validation, error) {
	ask := e.validate
	if q.GetCancel() != "" {
		ask = e.cancelValidation
	}
	var id string
	err := e.decideInLoop(ctx, func() (refused error) {
		if refused = e.learner.refusal(); refused != nil {
			return refused
		}
		id, refused = ask(who, q)
		return refused
	})
	if err != nil {
		return nil, err
	}
	var out *falconv1.Validation
	err = e.readInLoop(ctx, func() {
		for _, v := range e.validations.listViews("") {
			if v.GetId() == id {
				out = v
			}
		}
	})
	return out, err
}

func (e *Engine) cancelValidation(who Actor, q *falconv1.ValidateRequest) (string, error) {
	if e.validations.request != nil && e.validations.request.id == q.GetCancel() {
		e.validations.endRequest(e.cfg.Now(), "ended by "+who.Name)
		return q.GetCancel(), nil
	}
	v, _ := e.validations.machine.View()
	if !e.validations.machine.Active() || v.ID != q.GetCancel() {
		known := slices.ContainsFunc(e.state.tests, func(t validationRecord) bool {
			return t.Validation.ID == q.GetCancel()
		})
		if known {
			return "", fmt.Errorf("%w: %s is over already", ErrStale, clean(q.GetCancel()))
		}
		return "", fmt.Errorf("%w: no validation %q is in progress", ErrNotFound, clean(q.GetCancel()))
	}
	e.oplog.logf("validation", 1, v.ID, "%s: ended by %s", v.ID, who.Name)
	e.oplog.audit(e.cfg.Now(), who, auditEntry{Verb: "end test", About: v.ID})
	e.validations.machine.Step(e.cfg.Now(), validate.Stop{Why: "ended by " + who.Name})
	return v.ID, nil
}

func (e *Engine) validate(who Actor, q *falconv1.ValidateRequest) (string, error) {
	now := e.cfg.Now()
	use := e.arbiter.present(now)
	if why := e.validations.alreadyTaken(); why != "" {
		return "", fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if why, _ := e.arbiter.unready(now); why != "" {
		return "", fmt.Errorf("%w: %s", ErrRefused, why)
	}
	ask, err := e.cluster.validationAsk(who, q)
	if err != nil {
		return "", err
	}
	if why := cmp.Or(use.testForbidden(), e.cluster.unfitFor(ask)); why != "" {
		return "", fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if why := use.testObstacle(); why != "" {
		id := e.validations.takeRequest(now, ask, who, why)
		e.oplog.audit(now, who, auditEntry{
			Verb:   "test",
			About:  id,
			Reason: ask.Why,
		})
		return id, nil
	}
	id := e.validations.nextID()
	e.oplog.audit(now, who, auditEntry{Verb: "test", About: id, Reason: ask.Why})
	e.validations.start(now, id, ask, who)
	return id, nil
}

// alreadyTaken is why no other validation is taken, "" = none is in the way: two
// operators who look at the same trouble must not hold the job twice.
func (vq *validationQueue) alreadyTaken() string {
	if q := vq.request; q != nil {
		return fmt.Sprintf("%s, which %s asked for, waits already (%s)", q.id, q.who.Name, q.why)
	}
	v, _ := vq.machine.View()
	if vq.machine.Active() && vq.asking.who.Role != itself.Role {
		return fmt.Sprintf("%s is in progress (%s), asked for by %s", v.ID, v.State, vq.asking.who.Name)
	}
	return ""
}

// validationAsk checks a request and finds the ranks that it means: those named,
// those at the ends of the links named, or all.
func (c *clusterView) validationAsk(who Actor, q *falconv1.ValidateRequest) (falcon.ValidationAsk, error) {
	ask := falcon.ValidationAsk{
		Incident:     clean(q.GetIncident()),
		By:           who.Name,
		Why:          clean(q.GetReason()),
		GEMMSide:     int(q.GetGemmN()),
		MessageBytes: q.GetMessageBytes(),
	}
	if ask.Why == "" {
		ask.Why = "asked for by hand"
	}
	if err := checkSizes(q); err != nil {
		return ask, err
	}
	if _, known := c.state.incident(ask.Incident); ask.Incident != "" && !known {
		return ask, noIncident(ask.Incident)
	}
	ranks, err := c.ranksFrom(q.GetRanks())
	if err != nil {
		return ask, err
	}
	for _, name := range q.GetLinks() {
		pairs, err := c.linkPairs(name)
		if err != nil {
			return ask, err
		}
		ask.Pairs = append(ask.Pairs, pairs...)
	}
	if q.GetGemm() {
		ask.GEMM = c.gemmRanks(ranks, ask.Pairs)
	}
	if q.GetLinkTest() && (len(q.GetRanks()) > 0 || len(ask.Pairs) == 0) {
		if len(ranks) < 2 {
			return ask, fmt.Errorf("%w: a link has two ends: name at least two ranks, or the pair of nodes",
				ErrInvalid)
		}
		ask.Rings = [][]falcon.Rank{ranks}
	}
	return ask, nil
}

// gemmRanks are the ranks at the links' ends where only links are named.
func (c *clusterView) gemmRanks(ranks []falcon.Rank, pairs [][2]falcon.Rank) []falcon.Rank {
	if len(pairs) == 0 || len(ranks) < c.job.world() {
		return ranks
	}
	var out []falcon.Rank
	for _, p := range pairs {
		out = append(out, p[:]...)
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

func checkSizes(q *falconv1.ValidateRequest) error {
	switch {
	case !q.GetGemm() && !q.GetLinkTest() && len(q.GetLinks()) == 0:
		return fmt.Errorf("%w: nothing to test: ask for gemm, for links, or for both", ErrInvalid)
	case len(q.GetRanks()) > testedRanksMax:
		return fmt.Errorf("%w: %d ranks are more than the %d that one validation tests; name a group",
			ErrInvalid, len(q.GetRanks()), testedRanksMax)
	case len(q.GetLinks()) > testedLinksMax:
		return fmt.Errorf("%w: %d links are more than the %d that one validation tests",
			ErrInvalid, len(q.GetLinks()), testedLinksMax)
	case q.GetGemmN() < 0 || q.GetGemmN() > gemmSideMost:
		return fmt.Errorf("%w: a matrix side of %d is not between 1 and %d",
			ErrInvalid, q.GetGemmN(), gemmSideMost)
	case q.GetMessageBytes() < 0 || q.GetMessageBytes() > messageMost:
		return fmt.Errorf("%w: messages of %d bytes are not between 1 and %d",
			ErrInvalid, q.GetMessageBytes(), messageMost)
	}
	return nil
}

func (c *clusterView) ranksFrom(in []int32) ([]falcon.Rank, error) {
	world := c.job.world()
	out := make([]falcon.Rank, 0, len(in))
	for _, r := range in {
		if r < 0 || int(r) >= world {
			return nil, fmt.Errorf("%w: rank %d is none of the job's %d", ErrInvalid, r, world)
		}
		if !slices.Contains(out, falcon.Rank(r)) {
			out = append(out, falcon.Rank(r))
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if world > testedRanksMax {
		return nil, fmt.Errorf(
			"%w: the job's %d ranks are more than the %d that one validation tests; name ranks",
			ErrInvalid, world, testedRanksMax,
		)
	}
	for r := range world {
		out = append(out, falcon.Rank(r))
	}
	return out, nil
}

// linkPairs joins the ranks of two nodes one by one, in the order of devices:
// every rail of the link.
func (c *clusterView) linkPairs(name string) ([][2]falcon.Rank, error) {
	l, err := falcon.ParseLink(clean(name))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	a := c.ranksOn(l.A)
	b := c.ranksOn(l.B)
	for node, ranks := range map[falcon.Node][]falcon.Rank{l.A: a, l.B: b} {
		if len(ranks) == 0 {
			return nil, fmt.Errorf("%w: no rank of the job lives on node %s", ErrInvalid, node)
		}
	}
	var out [][2]falcon.Rank
	for i := range min(len(a), len(b)) {
		out = append(out, [2]falcon.Rank{a[i], b[i]})
	}
	return out, nil
}

// newestView is the one in progress, else the newest, which may wait still.
func (vq *validationQueue) newestView() *falconv1.Validation {
	if v, _ := vq.machine.View(); vq.machine.Active() {
		out := convert.ValidationToProto(v)
		out.Now = protoNow(vq.machine.Now())
		return out
	}
	if n := len(vq.state.tests); n > 0 {
		return convert.ValidationToProto(vq.asItStands(vq.state.tests[n-1].Validation))
	}
	return nil
}

// asItStands is a validation of the record, newer where it goes on.
func (vq *validationQueue) asItStands(v falcon.Validation) falcon.Validation {
	if now, _ := vq.machine.View(); now.ID == v.ID {
		return now
	}
	if q := vq.request; q != nil && q.id == v.ID {
		return vq.requestView(q)
	}
	return v
}

// Validations lists those in memory, newest first, and nothing else.
func (e *Engine) Validations(ctx context.Context) (*falconv1.IncidentsReply, error) {
	out := &falconv1.IncidentsReply{}
	err := e.readInLoop(ctx, func() {
		out.Validations = e.validations.listViews("")
	})
	return out, err
}

// listViews lists them newest first: all, or those of one incident.
func (vq *validationQueue) listViews(incident string) []*falconv1.Validation {
	var out []*falconv1.Validation
	for _, t := range slices.Backward(vq.state.tests) {
		v := t.Validation
		if (incident == "" || v.Ask.Incident == incident) && len(out) < validationsMost {
			out = append(out, convert.ValidationToProto(vq.asItStands(v)))
		}
	}
	return out
}
