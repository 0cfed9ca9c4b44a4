package agent

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/period"
)

// Bounds of one look at a process.
const (
	batchRecords = 4096 // records drained at once
	batchesMax   = 20   // batches a look: more than all rings of a process hold
	marksRead    = 64   // marks a look: all that the control block holds
)

// inferrer finds iterations in a rank's calls; *period.Tracker is one.
type inferrer interface {
	Observe(c period.Call) []period.Iteration
	Period() int
	Anchor() (period.Anchor, bool)
	Expect(calls int)
	Reset()
}

// buffers are shared by all looks of the loop, so that a look allocates
// nothing per record.
type buffers struct {
	records []ring.Record
	marks   []ring.Mark
}

func newBuffers() *buffers {
	return &buffers{records: make([]ring.Record, batchRecords), marks: make([]ring.Mark, 0, marksRead)}
}

// process is one training process while it lives and a little longer. The
// loop's goroutine alone touches it.
type process struct {
	path   string
	seg    Segment
	header ring.Header
	rank   falcon.Rank // held now, -1 while unknown; not unique while a placement is carried out
	exit   Exit
	born   uint64 // see Directory
	uid    int    // whose file its memory is

	comms   []ring.Comm
	commID  []uint64 // by slot, 0 = unknown
	largest int      // size of the largest communicator seen
	status  ring.Control
	warned  bool // of an NCCL newer than the hook
	looked  bool // the communicator table was read in this look

	marks    *iterate.Marks
	nextMark uint64
	infer    inferrer
	shift    int64 // added to inferred numbers so that they only grow
	lastNum  int64
	period   int
	census   *iterate.Census
	micro    int       // micro-batches per iteration, as last seen
	lost     uint64    // records and marks overwritten before they were read
	goneAt   time.Time // when its end was noticed

	survey      survey
	pauses      []span  // newest last
	iterationMs float64 // of the newest iteration, without pauses
	queueMs     float64 // how far the host ran ahead in the last profile

	tenures []tenure   // ranks held, newest last
	place   ring.Place // the newest placement
	moved   bool       // by one that was not published so far

	park     ring.Park     // as last read
	rejoined ring.Rejoined // the newest rejoin, Generation 0 for none
	news     bool          // of either that was not published so far

	calls  callCount
	window *window // profile in progress
	sent   *falconv1.RankState
	wire   []byte // of sent, to compare
	spare  []byte // wire of the next comparison

	ending   bool // it was told to end
	dead     bool
	deadline time.Time // until when a dead process's exit status is asked for
}

func newProcess(path string, seg Segment, exit Exit) *process {
	p := &process{
		path: path, seg: seg, header: seg.Header(), rank: -1, exit: exit,
		infer: period.NewTracker(period.Config{}), lastNum: math.MinInt64,
		census: iterate.NewCensus(),
	}
	p.marks = iterate.NewMarks(p.rank)
	p.refresh()
	return p
}

// refresh looks at communicators and status, and finds out the rank.
func (p *process) refresh() {
	p.looked = true
	p.status = p.seg.Control()
	p.comms = p.seg.Comms(p.comms)
	clear(p.commID)
	for _, c := range p.comms {
		for int(c.Slot) >= len(p.commID) {
			p.commID = append(p.commID, 0)
		}
		p.commID[c.Slot] = c.ID
		p.largest = max(p.largest, c.Size)
	}
	if p.rank < 0 {
		p.settle()
	}
	p.lookPark()
}

// findRank believes the launcher, else the largest communicator.
func (p *process) findRank() falcon.Rank {
	if p.header.Rank >= 0 {
		return falcon.Rank(p.header.Rank)
	}
	for _, c := range p.comms {
		if c.Size == p.largest && c.Rank >= 0 && (p.header.World < 0 || p.header.World == c.Size) {
			return falcon.Rank(c.Rank)
		}
	}
	return -1
}

func (p *process) world() int {
	if p.header.World > 0 {
		return p.header.World
	}
	return p.largest
}

// drain takes in what the process wrote since the last look and adds the
// iterations that ended to out.
func (p *process) drain(buf *buffers, out []falcon.Sample) []falcon.Sample {
	p.looked = false
	p.status = p.seg.Control()
	p.expect()
	for range batchesMax {
		n, lost := p.seg.Drain(buf.records)
		p.lost += lost
		for i := range buf.records[:n] {
			out = p.call(&buf.records[i], out)
		}
		if lost > 0 {
			p.survey.lost()
		}
		if n < len(buf.records) {
			p.begun()
			break
		}
	}
	return p.drainMarks(buf, out)
}

// begun tells the survey of an iteration without calls so far. The status was
// read before the records: those of the iterations before it are all counted.
func (p *process) begun() {
	if p.status.Iteration >= 0 {
		p.survey.at(p.status.Iteration)
	}
}

func (p *process) drainMarks(buf *buffers, out []falcon.Sample) []falcon.Sample {
	var lost uint64
	buf.marks, p.nextMark, lost = p.seg.Marks(p.nextMark, buf.marks)
	p.lost += lost
	p.move()
	p.lookPark()
	for _, m := range buf.marks {
		out = p.mark(m, out)
	}
	return out
}

// expect announces the period that other micro-batches will bring.
func (p *process) expect() {
	from, to := p.micro, p.status.MicroBatches
	if p.micro = to; from == to || p.infer.Period() == 0 {
		return
	}
	if n := p.census.Predict(from, to); n > 0 {
		p.infer.Expect(n)
	}
}

// call feeds one record to the period's inference.
func (p *process) call(r *ring.Record, out []falcon.Sample) []falcon.Sample {
	if r.Comm == ring.CommNone {
		return out
	}
	if p.window != nil {
		p.window.record(r)
	}
	c := p.periodCall(r)
	p.census.Add(iterate.Kind{Op: c.Op, Comm: c.Comm, Bytes: c.Bytes})
	its := p.infer.Observe(c)
	if len(its) > 0 {
		p.census.Close()
	}
	for _, it := range its {
		out = p.inferred(it, out)
	}
	if n := len(its); n > 0 && its[n-1].EndNs == c.TimeNs && !p.marked() {
		p.survey.begin(p.lastNum + 1) // with this call
	}
	p.survey.add(r, stepOf(r.Step, p.survey.newest))
	return out
}

func (p *process) periodCall(r *ring.Record) period.Call {
	return period.Call{
		Op: uint32(r.Op), Comm: p.id(r.Comm), Bytes: payload(r.Count, r.Dtype), TimeNs: r.EnterNs, Ordinal: r.Ordinal,
	}
}

// id is the communicator's id. A slot that is new to the agent makes it look
// at the table again, once a look.
func (p *process) id(slot uint32) uint64 {
	if !p.known(slot) && !p.looked {
		p.refresh()
	}
	if p.known(slot) {
		return p.commID[slot]
	}
	return uint64(slot)
}

func (p *process) known(slot uint32) bool {
	return int(slot) < len(p.commID) && p.commID[slot] != 0
}

// inferred makes a sample of an inferred iteration. Step marks win: with them
// inference only tells the period.
func (p *process) inferred(it period.Iteration, out []falcon.Sample) []falcon.Sample {
	if p.window != nil {
		p.window.close(it)
	}
	if p.marked() || p.rank < 0 || p.interrupted(it.StartNs, it.EndNs) {
		return out
	}
	if it.Number+p.shift <= p.lastNum { // learned anew, on another call
		p.shift = p.lastNum + 1 - it.Number
	}
	p.lastNum = it.Number + p.shift
	return append(out, p.newest(falcon.Sample{
		Rank: p.rank, Iteration: p.lastNum, EndNs: p.seg.UnixNs(it.EndNs), Ms: it.Ms(), PausedMs: p.pausedMs(it.StartNs, it.EndNs),
	}))
}

// newest remembers how long the newest iteration took.
func (p *process) newest(s falcon.Sample) falcon.Sample {
	p.iterationMs = s.RunMs()
	return s
}

// marked says whether the job marks its steps. A job may describe itself
// without doing so.
func (p *process) marked() bool { return p.marks.Any() || p.status.Iteration >= 0 }

func (p *process) mark(m ring.Mark, out []falcon.Sample) []falcon.Sample {
	if p.window != nil {
		p.window.begin(m)
	}
	s, ok := p.marks.Add(iterate.Mark{Iteration: m.Iteration, StartNs: uint64(max(m.StartNs, 0)), PausedNs: uint64(max(m.PausedNs, 0))})
	s.Rank = p.rankAt(s.Iteration)
	if !ok || s.Rank < 0 || p.interrupted(s.EndNs-int64(s.Ms*1e6), s.EndNs) {
		return out
	}
	s.EndNs = p.seg.UnixNs(s.EndNs)
	return append(out, p.newest(p.heldUp(s)))
}

// publish tells the process its period, for the record, when it changes.
func (p *process) publish() {
	if n := p.infer.Period(); n != p.period {
		p.period = n
		a, _ := p.infer.Anchor()
		p.seg.SetPeriod(uint32(n), anchorHash(a.Class))
	}
}

// state describes the process; nil while its rank is unknown.
func (p *process) state(node falcon.Node) *falconv1.RankState {
	if p.rank < 0 {
		return nil
	}
	st := &falconv1.RankState{
		Rank: int32(p.rank), Device: p.device(node), Pid: int32(p.header.PID), Alive: true,
		Tp: int32(p.status.TP), Dp: int32(p.status.DP), Pp: int32(p.status.PP), World: int32(p.world()),
		MicroBatches: int32(p.status.MicroBatches),
		Coverage:     p.status.Coverage, Unhooked: p.status.Coverage&ring.CoverUnhooked != 0,
		Period: uint32(p.infer.Period()), PeriodReason: p.reason(),
		TestWorkspace: p.status.TestWorkspace, Generation: p.status.Generation,
	}
	if p.place.Order != 0 {
		st.PlacementOrder, st.PlacementIteration = p.place.Order, p.place.Iteration
	}
	st.Committed = commitment(p.status.Committed())
	p.recoverable(st)
	for _, c := range p.comms {
		if c.State == ring.CommLive {
			st.Comms = append(st.Comms, convert.CommToProto(falcon.Comm{ID: c.ID, Name: c.Name, Size: c.Size, RankInComm: c.Rank, Generation: c.Generation}))
		}
	}
	return st
}

// generation is the newest one that the process is of, or was ordered into.
func (p *process) generation() uint64 {
	return max(p.status.GenerationNow, p.status.RejoinOrdered, p.status.SuspendWanted)
}

// commitment is what the engine is told of it; nil for none.
func commitment(c ring.Commitment) *falconv1.Commitment {
	if c.Order == 0 {
		return nil
	}
	return &falconv1.Commitment{Order: c.Order, Iteration: c.Iteration, Status: c.Status, ResumeIteration: c.Resume}
}

// reason says why no period is known; with step marks, that they count.
func (p *process) reason() string {
	switch {
	case p.marked():
		return "iterations come from the framework's step marks"
	case p.infer.Period() > 0:
		return ""
	case p.status.Coverage&ring.CoverUnhooked != 0:
		return "NCCL is loaded but not called through the hook: start the job with falcon-agent run"
	case len(p.comms) == 0:
		return "no communicator was created yet"
	}
	return "the calls so far have no period"
}

func (p *process) device(node falcon.Node) string {
	switch {
	case p.header.Device != "":
		return p.header.Device
	case p.header.LocalRank >= 0:
		return string(falcon.NewDevice(node, p.header.LocalRank))
	}
	return ""
}

// changed is the state to send when it differs from the one sent last.
func (p *process) changed(node falcon.Node, nicOf func(falcon.Device) falcon.NIC) *falconv1.RankState {
	st := p.state(node)
	if st != nil {
		st.Nic = string(nicOf(falcon.Device(st.Device)))
	}
	if st == nil {
		return nil
	}
	// Compared as bytes, of one encoder and without maps: several times cheaper than field by field.
	wire, _ := proto.MarshalOptions{}.MarshalAppend(p.spare[:0], st) // of plain fields: it can't fail
	if p.sent != nil && bytes.Equal(wire, p.wire) {
		p.spare = wire
		return nil
	}
	p.sent, p.wire, p.spare = st, wire, p.wire
	return st
}

// ended is the state of a process that is gone; nil when it never had a rank.
func (p *process) ended(node falcon.Node, how string) *falconv1.RankState {
	st := p.state(node)
	if st != nil {
		st.Alive, st.Exit = false, how
		st.Nic = p.sent.GetNic()
		p.sent, p.wire = st, marshal(st)
	}
	return st
}

func (p *process) String() string { return fmt.Sprintf("rank %d (pid %d)", p.rank, p.header.PID) }
