package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// call is one communication call of a training program: a collective of a
// communicator, or one message from one of its members to another.
type call struct {
	comm     int
	from, to int // ranks; −1 for a collective
}

// program is one iteration of a job: every rank does those calls that it takes
// part in, in this order, again and again.
type program struct {
	world int
	comms [][]int // members, ascending
	calls []call
}

func (p program) takesPart(r int, c call) bool {
	if c.from < 0 {
		return slices.Contains(p.comms[c.comm], r)
	}
	return r == c.from || r == c.to
}

// own are the calls of one rank in an iteration.
func (p program) own(r int) []call {
	var out []call
	for _, c := range p.calls {
		if p.takesPart(r, c) {
			out = append(out, c)
		}
	}
	return out
}

func (p program) members() []Member {
	out := make([]Member, p.world)
	for r := range out {
		out[r].Device = falcon.NewDevice("n", r)
		for id, ranks := range p.comms {
			if seat := slices.Index(ranks, r); seat >= 0 {
				out[r].Comms = append(out[r].Comms, falcon.Comm{
					ID:         uint64(id),
					Size:       len(ranks),
					RankInComm: seat,
				})
			}
		}
	}
	return out
}

// seen is what a rank reports whose iterations begin `shift` calls into the
// program's, at its iteration `newest`.
func (p program) seen(r int, newest int64, shift int, exact bool) *falconv1.RankPause {
	own := p.own(r)
	var done []call
	for range newest {
		done = append(done, own...)
	}
	done = append(done, own[:min(shift, len(own))]...)
	out := &falconv1.RankPause{
		Rank:        int32(r),
		State:       falconv1.PauseState_PAUSE_STATE_RUNNING,
		Newest:      newest,
		Boundary:    newest,
		Exact:       exact,
		IterationMs: 10,
	}
	for id, ranks := range p.comms {
		if slices.Contains(ranks, r) {
			out.Counts = append(out.Counts, p.counts(r, id, done, own))
		}
	}
	return out
}

func (p program) counts(r, id int, done, each []call) *falconv1.CommCount {
	out := &falconv1.CommCount{
		Comm:   uint64(id),
		Steady: true,
		Whole:  true,
	}
	peers := make([]falconv1.PeerCount, len(p.comms[id]))
	tally := func(list []call, calls, collectives *uint64, sends, recvs func(*falconv1.PeerCount) *uint64) {
		for _, c := range list {
			if c.comm != id {
				continue
			}
			*calls++
			switch {
			case c.from < 0:
				*collectives++
			case c.from == r:
				*sends(&peers[slices.Index(p.comms[id], c.to)])++
			default:
				*recvs(&peers[slices.Index(p.comms[id], c.from)])++
			}
		}
	}
	tally(
		done,
		&out.Calls,
		&out.Collectives,
		func(q *falconv1.PeerCount) *uint64 { return &q.Sends },
		func(q *falconv1.PeerCount) *uint64 { return &q.Recvs },
	)
	tally(
		each,
		&out.PerIteration,
		&out.CollectivesPerIteration,
		func(q *falconv1.PeerCount) *uint64 { return &q.SendsPerIteration },
		func(q *falconv1.PeerCount) *uint64 { return &q.RecvsPerIteration },
	)
	for seat := range peers {
		q := &peers[seat]
		if q.GetSends()+q.GetRecvs()+q.GetSendsPerIteration()+q.GetRecvsPerIteration() > 0 {
			q.Peer = int32(seat)
			out.Peers = append(out.Peers, q)
		}
	}
	return out
}

// run executes the job from its first call with the cuts in force, every call
// a rendezvous of all that take part in it, and says who stands anywhere but at
// its cut in the end.
func (p program) run(cuts []*falconv1.RankCut) string {
	at := make([]int, p.world)
	counted := make([]map[int]uint64, p.world)
	limit := make([]map[int]uint64, p.world)
	for r := range p.world {
		counted[r] = map[int]uint64{}
		limit[r] = map[int]uint64{}
		for _, l := range cuts[r].GetLimits() {
			limit[r][int(l.GetComm())] = l.GetCalls()
		}
	}
	next := func(r int) (call, bool) {
		own := p.own(r)
		if len(own) == 0 {
			return call{}, false
		}
		c := own[at[r]%len(own)]
		return c, counted[r][c.comm] < limit[r][c.comm]
	}
	for moved := true; moved; {
		moved = false
		for r := range p.world {
			c, free := next(r)
			if !free {
				continue
			}
			all := true
			for q := range p.world {
				if p.takesPart(q, c) {
					d, open := next(q)
					all = all && open && d == c
				}
			}
			if !all {
				continue
			}
			for q := range p.world {
				if p.takesPart(q, c) {
					at[q]++
					counted[q][c.comm]++
				}
			}
			moved = true
		}
	}
	for r := range p.world {
		for id, n := range limit[r] {
			if counted[r][id] != n {
				return fmt.Sprintf("rank %d has done %d calls on communicator %d and its cut is %d",
					r, counted[r][id], id, n)
			}
		}
	}
	return ""
}

func drawProgram(t *rapid.T) program {
	p := program{world: rapid.IntRange(2, 6).Draw(t, "world")}
	for range rapid.IntRange(1, 4).Draw(t, "communicators") {
		ranks := rapid.SliceOfNDistinct(
			rapid.IntRange(0, p.world-1),
			2,
			p.world,
			rapid.ID[int],
		).Draw(t, "members")
		slices.Sort(ranks)
		p.comms = append(p.comms, ranks)
	}
	for range rapid.IntRange(1, 12).Draw(t, "calls") {
		c := call{
			comm: rapid.IntRange(0, len(p.comms)-1).Draw(t, "communicator"),
			from: -1,
			to:   -1,
		}
		if ranks := p.comms[c.comm]; rapid.Bool().Draw(t, "message") {
			i := rapid.IntRange(0, len(ranks)-1).Draw(t, "from")
			j := rapid.IntRange(1, len(ranks)-1).Draw(t, "to")
			c.from = ranks[i]
			c.to = ranks[(i+j)%len(ranks)]
		}
		p.calls = append(p.calls, c)
	}
	return p
}

func (p program) survey(
	newest func(r int) int64,
	shift func(r int) int,
	exact bool,
) map[falcon.Rank]*falconv1.RankPause {
	out := map[falcon.Rank]*falconv1.RankPause{}
	for r := range p.world {
		out[falcon.Rank(r)] = p.seen(r, newest(r), shift(r), exact)
	}
	return out
}

// Whatever the job does in an iteration and however far its ranks have come:
// all of them reach their cuts, and no rank waits for a call that is behind
// another one's cut.
func TestEveryRankReachesItsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		survey := p.survey(func(int) int64 {
			return rapid.Int64Range(3, 6).Draw(t, "newest")
		}, func(int) int { return 0 }, rapid.Bool().Draw(t, "marks"))
		plan, why := planCuts(
			p.members(),
			survey,
			rapid.Int64Range(2, 5).Draw(t, "margin"),
		)
		if why != "" {
			t.Fatalf("refused: %s", why)
		}
		if why := p.run(plan.cuts); why != "" {
			t.Fatal(why)
		}
	})
}

// One rank that lies about where it is does not send the others to a boundary
// that no rank reaches, and counts that no gate can distinguish are refused.
func TestRanksFarApart(t *testing.T) {
	p := program{
		world: 4,
		comms: [][]int{{0, 1, 2, 3}},
		calls: []call{{comm: 0, from: -1, to: -1}},
	}
	for name, c := range map[string]struct {
		lie  func(*falconv1.RankPause)
		want string
	}{
		"ahead": {func(p *falconv1.RankPause) {
			p.Newest = 1 << 39
			p.Boundary = 1 << 39
		}, "rank 0 reports iteration 5 and rank 2 iteration 549755813888"},
		"behind": {func(p *falconv1.RankPause) {
			p.Newest = 5 + apartMost + 1
			p.Boundary = 5 + apartMost + 1
		}, "rank 0 reports iteration 5 and rank 2 iteration 1030"},
		"too many calls": {func(p *falconv1.RankPause) {
			p.Counts[0].PerIteration = 1 << 22
		}, "the cut of rank 2 on communicator 0000000000000000 is 8388608 calls ahead"},
		"refused": {func(p *falconv1.RankPause) {
			p.State = falconv1.PauseState_PAUSE_STATE_REFUSED
			p.Reason = "nothing is known yet"
			p.Newest = -1
			p.Boundary = -1
		}, "rank 2: nothing is known yet"},
	} {
		survey := p.survey(
			func(int) int64 { return 5 },
			func(int) int { return 0 },
			true,
		)
		c.lie(survey[2])
		_, why := planCuts(p.members(), survey, 2)
		if !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}

// Boundaries that are inferred may lie at different points of the iteration.
// Those that would hang are refused; those that are taken don't.
func TestNoCutThatHangs(t *testing.T) {
	refused, taken := 0, 0
	check := func(t *rapid.T) {
		p := drawProgram(t)
		survey := p.survey(
			func(int) int64 { return rapid.Int64Range(3, 6).Draw(t, "newest") },
			func(int) int {
				return rapid.IntRange(0, 3).Draw(t, "shift")
			}, false)
		plan, why := planCuts(p.members(), survey, 2)
		if why != "" {
			refused++
			return
		}
		if why := p.run(plan.cuts); why != "" {
			t.Fatal(why)
		}
		taken++
	}
	for range 10 { // few draws are taken, and -short draws few
		if rapid.Check(t, check); refused > 0 && taken > 0 {
			return
		}
	}
	t.Errorf("%d shifted boundaries refused and %d taken", refused, taken)
}

// A wrong anchor shows in the counts: 20 calls against 21.
func TestOneCallTooMany(t *testing.T) {
	p := program{world: 2, comms: [][]int{{0, 1}}}
	for range 20 {
		p.calls = append(p.calls, call{comm: 0, from: -1, to: -1})
	}
	survey := p.survey(
		func(int) int64 { return 5 },
		func(int) int { return 0 },
		true,
	)
	c := survey[1].GetCounts()[0]
	c.PerIteration, c.CollectivesPerIteration = 21, 21
	_, why := planCuts(p.members(), survey, 2)
	if !strings.Contains(why, "rank 0 does 20 collectives") || !strings.Contains(why, "rank 1 does 21") {
		t.Errorf("%q", why)
	}
}

func TestMessagesThatNobodyReceives(t *testing.T) {
	p := program{
		world: 2,
		comms: [][]int{{0, 1}},
		calls: []call{{0, 0, 1}, {0, -1, -1}},
	}
	for name, c := range map[string]struct {
		wrong func(*falconv1.CommCount)
		say   string
	}{
		"too many": {func(c *falconv1.CommCount) {
			c.Peers[0].SendsPerIteration = 2
		}, "rank 0 sends 2 messages an iteration to rank 1, which receives 1"},
		"in the past": {func(c *falconv1.CommCount) {
			c.Peers[0].Sends++
		}, "which will have received"},
		"no such peer": {func(c *falconv1.CommCount) {
			c.Peers[0].Peer = 9
		}, "names member 9"},
		"unsteady": {func(c *falconv1.CommCount) { c.Steady = false }, "unequally often"},
	} {
		survey := p.survey(
			func(int) int64 { return 5 },
			func(int) int { return 0 },
			true,
		)
		c.wrong(survey[0].GetCounts()[0])
		_, why := planCuts(p.members(), survey, 2)
		if !strings.Contains(why, c.say) {
			t.Errorf("%s: %q, want %q", name, why, c.say)
		}
	}
}

// What agents say about communicators is theirs to get wrong.
func TestCommunicatorsDescribedWrongly(t *testing.T) {
	p := program{
		world: 2,
		comms: [][]int{{0, 1}},
		calls: []call{{0, -1, -1}},
	}
	for name, c := range map[string]struct {
		wrong func(*falcon.Comm)
		say   string
	}{
		"no size":   {func(c *falcon.Comm) { c.Size = 0 }, "disagree about its size"},
		"huge":      {func(c *falcon.Comm) { c.Size = 1 << 40 }, "disagree about its size"},
		"same seat": {func(c *falcon.Comm) { c.RankInComm = 0 }, "member 1 of communicator"},
		"no seat":   {func(c *falcon.Comm) { c.RankInComm = -1 }, "member 1 of communicator"},
	} {
		members := p.members()
		c.wrong(&members[1].Comms[0])
		survey := p.survey(
			func(int) int64 { return 5 },
			func(int) int { return 0 },
			true,
		)
		if _, why := planCuts(members, survey, 2); !strings.Contains(why, c.say) {
			t.Errorf("%s: %q, want %q", name, why, c.say)
		}
	}
}

func TestLifeOfAnOrder(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "10s"},
		{Config{Life: 100e9}, "1m0s"},
		{Config{Life: 30e9, CollectiveTimeout: 60e9}, "15s"},
		{Config{CollectiveTimeout: 600e9}, "10s"},
	} {
		if got := c.cfg.OrderLife(); got.String() != c.want {
			t.Errorf("%+v: %s", c.cfg, got)
		}
	}
}

// The margin follows the time that orders take, and doubles with each attempt.
func TestMarginOfSlowAnswers(t *testing.T) {
	s := newScript(t)
	s.do(strings.Fields("begin gemm=0"))
	s.do(strings.Fields("survey n0 10"))
	s.do(strings.Fields("wait 250ms")) // iterations take 100 ms: 250 ms since the survey and as long again
	if got := s.do(strings.Fields("survey n1 10")); !strings.Contains(got, "rank 0@16 ") {
		t.Errorf("want the boundary 1 + 5 iterations ahead:\n%s", got)
	}
}
