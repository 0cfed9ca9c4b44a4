package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/mitigate"
)

// bids is a planner with many proposals and nothing else: the engine, the doors
// and the clients around it are the real ones.
type bids struct {
	mu        sync.Mutex
	actions   []falcon.Action
	announced bool // the proposals were handed out
	ready     mitigate.Ready
	policy    falcon.Policy
	taken     map[string][]mitigate.Decision
}

func newBids(n int) *bids {
	b := &bids{taken: map[string][]mitigate.Decision{}}
	for i := range n {
		b.actions = append(b.actions, falcon.Action{
			ID:       fmt.Sprintf("INC-0001/S2/%d", i+1),
			Incident: "INC-0001",
			Rung:     falcon.RungS2,
			State:    falcon.ActionProposed,
			Plan:     falcon.Plan{PlanHash: fmt.Sprint("plan", i)},
		})
	}
	return b
}

func (b *bids) Step(_ time.Time, in mitigate.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch in := in.(type) {
	case mitigate.SetPolicy:
		b.policy = in.Policy
	case mitigate.Decision:
		b.taken[in.Action] = append(b.taken[in.Action], in)
		a := b.find(in.Action)
		if a.State = falcon.ActionVetoed; in.Approve {
			a.State = falcon.ActionApproved
		}
		a.DecidedBy = in.By
		b.ready.Actions = append(b.ready.Actions, *a)
	}
}

func (b *bids) find(id string) *falcon.Action {
	for i := range b.actions {
		if b.actions[i].ID == id {
			return &b.actions[i]
		}
	}
	return nil
}

func (b *bids) Tick(time.Time) {}

// Ready proposes all at once: an engine without nodes gives no ticks, as it still listens.
func (b *bids) Ready() mitigate.Ready {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.announced {
		b.announced = true
		b.ready.Actions = append(b.ready.Actions, b.actions...)
	}
	return b.ready
}

func (b *bids) Advance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = mitigate.Ready{}
}

func (b *bids) Ladder(string) (falcon.Ladder, bool) {
	return falcon.Ladder{}, false
}

func (b *bids) Policy() falcon.Policy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.policy
}

func (b *bids) Check(d mitigate.Decision) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.find(d.Action); a.State != falcon.ActionProposed {
		// as the real planner says
		return fmt.Errorf("%w: %s is %s, decided by %s", mitigate.ErrDecided, a.ID, a.State, a.DecidedBy)
	}
	return nil
}

func (b *bids) OverheadsMs() map[falcon.Rung]float64 { return nil }

// Two operators at two doors decide on the same proposals at the same moment,
// one for and one against: each proposal gets one decision, and the second one
// is told who decided what.
func TestTwoOperatorsRacingGetOneDecision(t *testing.T) {
	const rounds = 24
	plan := newBids(rounds)
	s := newSiteWith(t, plan)
	local := falconv1.NewConsoleClient(s.dialSocket())
	li := falconv1.NewConsoleClient(s.dial(s.issue(auth.RoleApprover, "li")))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	waitProposals(ctx, t, local)
	first, err := local.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1})
	if err != nil {
		t.Fatal(err)
	}
	me := first.Actor
	lost := 0
	for i := range rounds {
		q := func(approve bool) *falconv1.DecideRequest {
			return &falconv1.DecideRequest{
				Incident: "INC-0001",
				Action:   fmt.Sprintf("INC-0001/S2/%d", i+1),
				PlanHash: fmt.Sprint("plan", i),
				Approve:  approve,
				Reason:   "race",
			}
		}
		start := make(chan struct{})
		errs := make([]error, 2)
		var both sync.WaitGroup
		for n, c := range []falconv1.ConsoleClient{local, li} {
			both.Go(func() {
				<-start
				_, errs[n] = c.Decide(ctx, q(n == 0))
			})
		}
		close(start)
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v", i, errs[0], errs[1])
		}
		refused := errs[0]
		by := "vetoed by li"
		if errs[0] == nil {
			refused = errs[1]
			by = "approved by " + me
		}
		if status.Code(refused) != codes.FailedPrecondition ||
			!strings.Contains(strings.ReplaceAll(refused.Error(), ", decided by", " by"), by) {
			t.Errorf("round %d: the second is refused with %v, want %q", i, refused, by)
		}
		if errs[0] != nil {
			lost++
		}
	}
	t.Logf("the first door lost %d of %d races", lost, rounds)
	plan.mu.Lock()
	defer plan.mu.Unlock()
	for _, a := range plan.actions {
		if n := len(plan.taken[a.ID]); n != 1 {
			t.Errorf("%s got %d decisions", a.ID, n)
		}
	}
}

// waitProposals asks for an action that is there as soon as all are.
func waitProposals(ctx context.Context, t *testing.T, c falconv1.ConsoleClient) {
	t.Helper()
	for {
		_, err := c.Decide(ctx, &falconv1.DecideRequest{
			Incident: "INC-0001",
			Action:   "INC-0001/S2/1",
			PlanHash: "none",
			Approve:  true,
		})
		switch status.Code(err) {
		case codes.FailedPrecondition: // known, and the plan is not that
			return
		case codes.NotFound:
		default:
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatal("no proposal came")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Whatever a viewer calls, and whatever an operator calls besides freezing,
// nothing is decided and no policy changes, with requests that would do it.
func TestLesserRolesActByNoMethod(t *testing.T) {
	plan := newBids(1)
	s := newSiteWith(t, plan)
	admin := falconv1.NewConsoleClient(s.dialSocket())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	waitProposals(ctx, t, admin)
	policy := func() *falconv1.Policy {
		r, err := admin.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Policy
	}
	was := policy()
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleOperator} {
		c := falconv1.NewConsoleClient(s.dial(s.issue(role, string(role))))
		act := map[string]func() error{
			"approve": func() error {
				_, err := c.Decide(ctx, &falconv1.DecideRequest{
					Incident: "INC-0001",
					Action:   "INC-0001/S2/1",
					PlanHash: "plan0",
					Approve:  true,
				})
				return err
			},
			"veto": func() error {
				_, err := c.Decide(ctx, &falconv1.DecideRequest{
					Incident: "INC-0001",
					Action:   "INC-0001/S2/1",
					PlanHash: "plan0",
				})
				return err
			},
			"take": func() error {
				_, err := c.Decide(ctx, &falconv1.DecideRequest{
					Incident: "INC-0001",
					Rung:     "S4",
					Approve:  true,
				})
				return err
			},
			"loosen": func() error {
				_, err := c.SetPolicy(ctx, &falconv1.SetPolicyRequest{Policy: &falconv1.Policy{
					Mode:    "auto",
					Cap:     "S3",
					Version: was.Version,
				}})
				return err
			},
			"test": func() error {
				_, err := c.Validate(ctx, &falconv1.ValidateRequest{Gemm: true})
				return err
			},
		}
		for _, verb := range []string{"approve", "deny", "abort", "fence", "renew", "lift"} {
			act["recovery: "+verb] = func() error {
				_, err := c.Recover(ctx, &falconv1.RecoverRequest{
					Verb:     verb,
					Recovery: "REC-0001",
					Node:     "n1",
					Reason:   "x",
				})
				return err
			}
		}
		for name, call := range act {
			if err := call(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s as %s: %v", name, role, err)
			}
		}
	}
	now := policy()
	plan.mu.Lock()
	defer plan.mu.Unlock()
	if len(plan.taken) != 0 || now.Version != was.Version || now.Mode != was.Mode {
		t.Errorf("decisions %v, policy %v, was %v", plan.taken, now, was)
	}
}
