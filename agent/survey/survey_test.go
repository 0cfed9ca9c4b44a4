package survey

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// surveyJob is a random job of one process: what each iteration calls on each
// communicator, where one iteration in ten calls once more.
type surveyJob struct {
	rng     *rand.Rand
	script  [][]ring.Record // by communicator, one iteration
	next    [3]uint64
	records []ring.Record // all of the job, in order
}

func newSurveyJob(rng *rand.Rand) *surveyJob {
	j := &surveyJob{rng: rng}
	for comm := range uint32(3) {
		var calls []ring.Record
		for range rng.IntN(6) {
			calls = append(calls, ring.Record{
				Comm: comm,
				Op: []falcon.Op{
					falcon.OpAllReduce,
					falcon.OpSend,
					falcon.OpRecv,
					falcon.OpSignal,
				}[rng.IntN(4)],
				Peer: int32(rng.IntN(3)),
			})
		}
		j.script = append(j.script, calls)
	}
	return j
}

// iteration writes the calls of one, in random order over the communicators.
func (j *surveyJob) iteration(step uint32) []ring.Record {
	var calls []ring.Record
	for _, c := range j.script {
		calls = append(calls, c...)
	}
	if j.rng.IntN(10) == 0 {
		calls = append(calls, ring.Record{
			Comm: uint32(j.rng.IntN(3)),
			Op:   falcon.OpAllReduce,
		})
	}
	j.rng.Shuffle(len(calls), func(a, b int) {
		calls[a], calls[b] = calls[b], calls[a]
	})
	for i := range calls {
		c := &calls[i]
		c.Ordinal = j.next[c.Comm]
		c.Step = step
		j.next[c.Comm]++
	}
	j.records = append(j.records, calls...)
	return calls
}

// simple counts the same from the whole history, one communicator at a time.
func (j *surveyJob) simple(comm uint32, boundary int64) *falconv1.CommCount {
	out := &falconv1.CommCount{
		Comm:   uint64(comm) + 100,
		Whole:  true,
		Steady: true,
	}
	per := map[int64]*falconv1.CommCount{}
	for _, r := range j.records {
		it := int64(int32(r.Step))
		if r.Comm != comm || it >= boundary {
			continue
		}
		if per[it] == nil {
			per[it] = &falconv1.CommCount{}
		}
		tally(out, &r)
		tally(per[it], &r)
	}
	get := func(i int64) *falconv1.CommCount {
		if per[i] == nil {
			return &falconv1.CommCount{}
		}
		return per[i]
	}
	last := get(boundary - 1)
	out.Steady = proto.Equal(last, get(boundary-2)) && proto.Equal(last, get(boundary-3))
	if !out.Steady {
		return out
	}
	out.PerIteration = last.Calls
	out.CollectivesPerIteration = last.Collectives
	for _, p := range out.Peers {
		for _, q := range last.Peers {
			if p.Peer == q.Peer {
				p.SendsPerIteration, p.RecvsPerIteration = q.Sends, q.Recvs
			}
		}
	}
	return out
}

func tally(c *falconv1.CommCount, r *ring.Record) {
	c.Calls++
	if r.Op == falcon.OpAllReduce {
		c.Collectives++
	}
	if r.Op != falcon.OpSend && r.Op != falcon.OpRecv {
		return
	}
	i := slices.IndexFunc(c.Peers, func(p *falconv1.PeerCount) bool {
		return p.Peer == r.Peer
	})
	if i < 0 {
		c.Peers, i = append(c.Peers, &falconv1.PeerCount{Peer: r.Peer}), len(c.Peers)
	}
	if r.Op == falcon.OpSend {
		c.Peers[i].Sends++
	} else {
		c.Peers[i].Recvs++
	}
	slices.SortFunc(c.Peers, func(a, b *falconv1.PeerCount) int {
		return int(a.Peer - b.Peer)
	})
}

func (j *surveyJob) table() []ring.Comm {
	var out []ring.Comm
	for slot, calls := range j.next {
		out = append(out, ring.Comm{
			Slot:  uint32(slot),
			ID:    uint64(slot) + 100,
			State: ring.CommLive,
			Calls: calls,
			Size:  3,
		})
	}
	return out
}

func TestSurveyAgainstASimpleCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	steady, unsteady := 0, 0
	for range 300 {
		j := newSurveyJob(rng)
		s := &Counter{}
		last := int64(4 + rng.IntN(12))
		for step := range last {
			for _, r := range j.iteration(uint32(step)) {
				s.Add(&r, iterate.StepOf(r.Step, s.newest))
			}
			s.Reached(step + 1)
		}
		// Some calls of the newest iteration came already: they count for nothing.
		for _, r := range j.iteration(uint32(last)) {
			s.Add(&r, iterate.StepOf(r.Step, s.newest))
		}
		boundary, got, ok := s.Report(j.table())
		if !ok || boundary != last || len(got) != 3 {
			t.Fatalf("boundary %d of %d, %d communicators", boundary, last, len(got))
		}
		for comm, g := range got {
			want := j.simple(uint32(comm), last)
			if j.next[comm] == 0 {
				want.Peers = nil
			}
			if !proto.Equal(want, g) {
				t.Fatalf("communicator %d at iteration %d:\nwant %v\ngot  %v", comm, last, want, g)
			}
			if g.Steady {
				steady++
			} else {
				unsteady++
			}
		}
	}
	if steady < 100 || unsteady < 50 {
		t.Fatalf("%d steady and %d unsteady counts: the test shows little", steady, unsteady)
	}
}

// ring3 feeds a regular pipeline stage: two calls on comm 1, one on comm 0.
func regular(s *Counter, from, to int64) {
	for i := from; i < to; i++ {
		for _, r := range []ring.Record{
			{Comm: 1, Op: falcon.OpRecv, Ordinal: uint64(2 * i), Step: uint32(i)},
			{Comm: 1, Op: falcon.OpSend, Ordinal: uint64(2*i + 1), Step: uint32(i), Peer: 2},
			{Comm: 0, Op: falcon.OpAllReduce, Ordinal: uint64(i), Step: uint32(i)},
		} {
			s.Add(&r, i)
		}
	}
}

func regularTable(iterations uint64) []ring.Comm {
	return []ring.Comm{
		{Slot: 0, ID: 100, State: ring.CommLive, Calls: iterations},
		{Slot: 1, ID: 101, State: ring.CommLive, Calls: 2 * iterations},
		{Slot: 2, ID: 102, State: ring.CommGone, Calls: 9},
	}
}

// An agent that came late knows the counts exactly by the ordinals, and the
// rates, but not what each call was.
func TestSurveyOfALateAgent(t *testing.T) {
	s := &Counter{}
	regular(s, 50, 51)
	if _, _, ok := s.Report(regularTable(51)); ok {
		t.Fatal("the start of an iteration that had begun before is no boundary")
	}
	regular(s, 51, 56)
	// called on at the job's start alone
	idle := ring.Comm{
		Slot:  7,
		ID:    107,
		State: ring.CommLive,
		Calls: 3,
	}
	if _, got, _ := s.Report([]ring.Comm{idle}); got[0].Calls != 3 ||
		!got[0].Steady ||
		got[0].PerIteration != 0 ||
		got[0].Whole {
		t.Fatalf("an idle communicator: %v", got)
	}
	boundary, got, _ := s.Report(regularTable(56))
	want := &falconv1.CommCount{
		Comm:         101,
		Calls:        110,
		PerIteration: 2,
		Steady:       true,
		Peers: []*falconv1.PeerCount{{RecvsPerIteration: 1}, {
			Peer:              2,
			SendsPerIteration: 1,
		}},
	}
	if boundary != 55 ||
		len(got) != 2 ||
		got[0].Calls != 55 ||
		got[0].CollectivesPerIteration != 1 ||
		got[0].Whole ||
		!proto.Equal(got[1], want) {
		t.Fatalf("at %d: %v", boundary, got)
	}
}

func TestSurveyAfterALoss(t *testing.T) {
	s := &Counter{}
	regular(s, 0, 10)
	s.Forget()
	if _, _, ok := s.Report(regularTable(10)); ok {
		t.Fatal("a boundary from before a loss was kept")
	}
	regular(s, 12, 14)
	boundary, got, ok := s.Report(regularTable(14))
	if !ok ||
		boundary != 13 ||
		got[0].Calls != 13 ||
		got[0].Steady ||
		got[0].Whole {
		t.Fatalf("at %d: %v", boundary, got)
	}
	regular(s, 14, 18)
	_, got, _ = s.Report(regularTable(18))
	if !got[0].Steady || got[0].Whole || got[0].PerIteration != 1 {
		t.Fatalf("it does not recover: %v", got)
	}
}

// A record of another thread that comes late still counts to its iteration.
func TestSurveyOfLateRecords(t *testing.T) {
	s := &Counter{}
	regular(s, 0, 6)
	s.Reached(6)
	late := ring.Record{
		Comm:    0,
		Op:      falcon.OpAllReduce,
		Ordinal: 6,
		Step:    5,
	}
	s.Add(&late, 5)
	_, got, _ := s.Report([]ring.Comm{{
		Slot:  0,
		ID:    100,
		State: ring.CommLive,
		Calls: 7,
	}})
	if got[0].Calls != 7 ||
		got[0].Collectives != 7 ||
		!got[0].Whole ||
		got[0].Steady {
		t.Fatalf("%v", got)
	}
}

func TestSurveyOfAResumedJobAndNewCommunicators(t *testing.T) {
	s := &Counter{}
	regular(s, 0, 10)
	s.Reached(9)
	s.Reached(4) // back to a checkpoint
	if _, _, ok := s.Report(regularTable(10)); ok {
		t.Fatal("boundaries of the job's last life were kept")
	}
	again := ring.Record{
		Comm:    1,
		Op:      falcon.OpAllReduce,
		Ordinal: 0,
		Step:    4,
	}
	s.Add(&again, 4)
	s.Reached(5)
	if _, got, ok := s.Report([]ring.Comm{
		{Slot: 1, ID: 7, State: ring.CommLive, Calls: 1},
		{Slot: 9, ID: 8, State: ring.CommLive},
	}); !ok ||
		got[0].Calls != 1 ||
		!got[0].Whole ||
		got[0].Collectives != 1 ||
		len(got[0].Peers) != 0 ||
		!got[1].Whole ||
		!got[1].Steady {
		t.Fatalf("%v", got)
	}
	if _, got, _ := s.Report([]ring.Comm{{Slot: 0, ID: 9, State: ring.CommLive, Calls: 3}}); got[0].Steady ||
		got[0].Whole ||
		got[0].Calls != 3 {
		t.Fatalf("a slot used again was mistaken for its last life: %v", got)
	}
}

// The process begins an iteration between the agent's look at its word and at
// its records: the word is behind, and nothing is forgotten for it.
func TestSurveyOfAWordOlderThanTheRecords(t *testing.T) {
	s := &Counter{}
	for i := int64(1); i < 12; i++ {
		regular(s, i-1, i)
		s.Reached(i - 1 - i%3/2) // the iteration of the newest record, or the one before
	}
	if s.Missing() != 0 {
		t.Fatalf("%d starts are missing", s.Missing())
	}
	boundary, got, ok := s.Report(regularTable(11))
	if !ok ||
		boundary != 10 ||
		!got[0].Steady ||
		!got[1].Steady ||
		got[1].Calls != 20 {
		t.Fatalf("at %d: %v", boundary, got)
	}
}

func TestSurveyIsBounded(t *testing.T) {
	s := &Counter{}
	for i := range uint64(3 * peersMax) {
		r := ring.Record{
			Comm:    uint32(i % 2),
			Op:      falcon.OpSend,
			Peer:    int32(i),
			Ordinal: i / 2,
			Step:    uint32(i / 4096),
		}
		s.Add(&r, int64(i/4096))
	}
	if s.peers != peersMax {
		t.Fatalf("%d peers are remembered", s.peers)
	}
	_, got, _ := s.Report([]ring.Comm{{
		Slot:  0,
		ID:    1,
		State: ring.CommLive,
		Calls: 1 << 30,
	}})
	if got[0].Whole || got[0].Steady {
		t.Fatalf("counts that leave out peers are given for whole: %v", got[0].Calls)
	}
	wild := ring.Record{Comm: 9999, Ordinal: math.MaxUint64}
	s.Add(&wild, math.MaxInt64)
}

// Old communicators are let go an iteration after the swap, new ones start at
// zero: the survey asks for three iterations of them before it says anything,
// and counts are exact from then on.
func TestSurveyAfterASwap(t *testing.T) {
	var s Counter
	call := func(slot uint32, ordinal uint64, step int64) {
		s.Add(&ring.Record{Comm: slot, Ordinal: ordinal, Op: falcon.OpAllReduce, Peer: -1}, step)
	}
	for i := range int64(6) {
		s.Reached(i)
		call(0, uint64(i), i)
	}
	comms := []ring.Comm{{Slot: 0, ID: 77, Calls: 6, State: ring.CommLive}, {
		Slot:  1,
		ID:    99,
		Calls: 2,
		State: ring.CommLive,
	}}
	call(1, 0, 5) // the swap tries its new communicator
	s.ForgetBefore(6)
	if _, _, ok := s.Report(comms); ok || s.Missing() != startsMax {
		t.Fatalf("a boundary of before the swap was reported, %d missing", s.Missing())
	}
	for i := int64(6); i < 10; i++ {
		s.Reached(i)
		call(1, uint64(i-5), i)
	}
	comms[1].Calls = 5
	at, counts, ok := s.Report(comms)
	if !ok || at != 9 || s.Missing() != 0 {
		t.Fatalf("boundary %d, %v, %d missing", at, ok, s.Missing())
	}
	if c := counts[1]; !c.Steady || !c.Whole || c.Calls != 4 || c.PerIteration != 1 {
		t.Fatalf("new communicator %v", c)
	}
	if c := counts[0]; !c.Steady || !c.Whole || c.Calls != 6 || c.PerIteration != 0 {
		t.Fatalf("old communicator %v", c)
	}
}
