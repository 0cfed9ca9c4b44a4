package agent

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/agent/survey"
	"github.com/failslow/falcon/agent/tail"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/period"
	"github.com/failslow/falcon/detect/work"
)

// Bounds of one poll of a process.
const (
	batchRecords = 4096 // records drained at once
	batchesMax   = 20   // batches a poll: more than all rings of a process hold
	marksRead    = 64   // marks a poll: all that the control block holds
)

// buffers are shared by all polls of the loop, so that a poll allocates nothing per
// record.
type buffers struct {
	records []ring.Record
	marks   []ring.Mark
}

func newBuffers() *buffers {
	return &buffers{
		records: make([]ring.Record, batchRecords),
		marks:   make([]ring.Mark, 0, marksRead),
	}
}

// process is one training process while it lives and a little longer. The
// loop's goroutine alone touches it.
type process struct {
	path   string
	seg    Segment
	header ring.Header
	exit   Exit
	born   uint64 // see Directory
	uid    int    // whose file its memory is

	rank        falcon.Rank // held now, -1 while unknown; not unique while a placement is carried out
	status      ring.Control
	lost        uint64 // records and marks overwritten before they were read
	warned      bool   // of an NCCL newer than the hook
	refusedMesh string // newest declared mesh that is none, and was logged

	comms      commTable
	ranks      rankHistory
	iterations iterationTracker
	survey     survey.Counter
	pauses     pauseHistory
	recovery   recoveryState
	stored     *storedCheckpoint // of the job, nil = not searched
	calls      callCount
	tail       tail.Tail
	window     *window // profile in progress
	queueMs    float64 // how far the host ran ahead in the last profile
	reported   report

	ending   ending
	said     string    // the telling line of its output, once it has ended
	goneAt   time.Time // when its end was noticed
	dead     bool
	read     bool      // what it printed last was asked for
	deadline time.Time // until when a dead process's exit status is asked for
}

func newProcess(path string, seg Segment, exit Exit) *process {
	p := &process{
		path:       path,
		seg:        seg,
		header:     seg.Header(),
		rank:       -1,
		exit:       exit,
		iterations: newIterationTracker(),
	}
	p.refresh()
	return p
}

// refresh reads communicators and status, and finds out the rank.
func (p *process) refresh() {
	p.status = p.seg.Control()
	p.comms.readTable(p.seg)
	if p.rank < 0 {
		p.findFirstRank()
	}
	p.readRecovery()
}

// launchedRank is the launcher's where it gave one, else that in the largest communicator.
func (p *process) launchedRank() falcon.Rank {
	if p.header.Rank >= 0 {
		return falcon.Rank(p.header.Rank)
	}
	return falcon.Rank(p.comms.rankInLargest(p.header.World))
}

func (p *process) worldSize() int {
	if p.header.World > 0 {
		return p.header.World
	}
	return p.comms.largest
}

// drainRings takes in what the process wrote since the last poll and adds the
// iterations that ended to out.
func (p *process) drainRings(buf *buffers, out []falcon.Sample) []falcon.Sample {
	p.comms.outdate()
	p.status = p.seg.Control()
	p.iterations.expectMicroBatches(p.status.MicroBatches)
	out = p.drainRecords(buf, out)
	return p.drainMarks(buf, out)
}

func (p *process) drainRecords(buf *buffers, out []falcon.Sample) []falcon.Sample {
	for range batchesMax {
		n, lost := p.seg.Drain(buf.records)
		p.lost += lost
		for i := range buf.records[:n] {
			out = p.feedCall(&buf.records[i], out)
		}
		if lost > 0 {
			p.survey.Forget()
			p.iterations.work.Forget()
		}
		if n < len(buf.records) {
			p.surveyStatus()
			break
		}
	}
	return out
}

// surveyStatus has the survey know an iteration without calls so far. The status was
// read before the records: those of the iterations before it are all counted.
func (p *process) surveyStatus() {
	if p.status.Iteration >= 0 {
		p.survey.Reached(p.status.Iteration)
	}
}

func (p *process) drainMarks(buf *buffers, out []falcon.Sample) []falcon.Sample {
	var lost uint64
	buf.marks, lost = p.iterations.readMarks(p.seg, buf.marks)
	p.lost += lost
	p.readPlacement()
	p.readRecovery()
	n := len(buf.marks)
	// set while the records were read: calls before it may have come since
	if n > 0 && buf.marks[n-1].Iteration > p.status.Iteration {
		out = p.drainRecords(buf, out)
	}
	for _, m := range buf.marks {
		out = p.markSample(m, out)
	}
	return out
}

// feedCall feeds one record to the period's inference.
func (p *process) feedCall(r *ring.Record, out []falcon.Sample) []falcon.Sample {
	if r.Comm == ring.CommNone {
		p.tail.Add(r, 0)
		return out
	}
	p.tail.Add(r, p.commID(r.Comm))
	if p.window != nil {
		p.window.addRecord(r)
	}
	c := p.periodCall(r)
	p.iterations.work.Add(work.Call{
		Comm:    c.Comm,
		Op:      r.Op,
		Peer:    r.Peer,
		Bytes:   c.Bytes,
		EnterNs: r.EnterNs,
		ExitNs:  r.ExitNs,
	})
	its := p.iterations.observeCall(c)
	for _, it := range its {
		out = p.inferredSample(it, out)
	}
	if n := len(its); n > 0 && its[n-1].EndNs == c.TimeNs && !p.hasMarks() {
		p.survey.Begin(p.iterations.last + 1) // with this call
	}
	newest, _ := p.survey.Newest()
	p.survey.Add(r, iterate.StepOf(r.Step, newest))
	at, known := p.survey.Newest()
	p.iterations.tallyCall(c, r.Peer, at, known)
	return out
}

func (p *process) periodCall(r *ring.Record) period.Call {
	return period.Call{
		Op:      uint32(r.Op),
		Comm:    p.commID(r.Comm),
		Bytes:   payloadBytes(r.Count, r.Dtype),
		TimeNs:  r.EnterNs,
		Ordinal: r.Ordinal,
	}
}

// commID is the communicator's id. A slot that is new to the agent has it read the table
// again, once a drain.
func (p *process) commID(slot uint32) uint64 {
	if !p.comms.knowsSlot(slot) && !p.comms.current {
		p.refresh()
	}
	return p.comms.idOfSlot(slot)
}

// inferredSample makes a sample of an inferred iteration. Step marks win: with them
// inference only gives the period.
func (p *process) inferredSample(it period.Iteration, out []falcon.Sample) []falcon.Sample {
	if p.window != nil {
		p.window.addBoundary(it)
	}
	if p.hasMarks() || p.rank < 0 || p.interrupted(it.StartNs, it.EndNs) {
		return out
	}
	p.iterations.endedNs = it.EndNs
	return append(out, p.noteDuration(falcon.Sample{
		Rank:      p.rank,
		Iteration: p.iterations.numberOf(it),
		EndNs:     p.seg.UnixNs(it.EndNs),
		Ms:        it.Ms(),
		PausedMs:  p.pausedMsWithin(it.StartNs, it.EndNs),
		Work:      p.iterations.work.Close(it.StartNs, it.EndNs, false),
	}))
}

// noteDuration remembers how long the newest iteration took.
func (p *process) noteDuration(s falcon.Sample) falcon.Sample {
	p.iterations.newestMs = s.RunMs()
	return s
}

// hasMarks reports whether the job marks its steps. A job may describe itself
// without doing so.
func (p *process) hasMarks() bool {
	return p.iterations.marks.Any() || p.status.Iteration >= 0
}

func (p *process) markSample(m ring.Mark, out []falcon.Sample) []falcon.Sample {
	if p.window != nil {
		p.window.addMark(m)
	}
	s, ok := p.iterations.addMark(m)
	if ok {
		s.Work = p.iterations.work.Close(s.EndNs-int64(s.Ms*1e6), s.EndNs, true)
	}
	s.Rank = p.ranks.rankAt(s.Iteration)
	if !ok || s.Rank < 0 || p.interrupted(s.EndNs-int64(s.Ms*1e6), s.EndNs) {
		return out
	}
	p.iterations.endedNs = s.EndNs
	s.EndNs = p.seg.UnixNs(s.EndNs)
	return append(out, p.noteDuration(p.ranks.withoutPlacement(s)))
}

// rankState describes the process; nil while its rank is unknown.
func (p *process) rankState(node falcon.Node) *falconv1.RankState {
	if p.rank < 0 {
		return nil
	}
	st := &falconv1.RankState{
		Rank:          int32(p.rank),
		Device:        p.deviceName(node),
		Pid:           int32(p.header.PID),
		Alive:         true,
		Tp:            int32(p.status.TP),
		Dp:            int32(p.status.DP),
		Pp:            int32(p.status.PP),
		World:         int32(p.worldSize()),
		MicroBatches:  int32(p.status.MicroBatches),
		Coverage:      p.status.Coverage,
		Unhooked:      p.status.Coverage&ring.CoverUnhooked != 0,
		Period:        uint32(p.iterations.infer.Period()),
		PeriodReason:  p.periodReason(),
		TestWorkspace: p.status.TestWorkspace,
		Generation:    p.status.Generation,
		Bound:         uint32(p.status.Bound.How),
		NcclVersion:   uint32(p.status.Bound.NCCL),
	}
	p.declareMesh(st)
	if at := p.ranks.newest; at.Order != 0 {
		st.PlacementOrder = at.Order
		st.PlacementIteration = at.Iteration
	}
	st.Committed = commitment(p.status.Committed())
	p.addRecovery(st)
	for _, t := range p.iterations.tally.Traffic() {
		st.Traffic = append(st.Traffic, convert.TrafficToProto(t))
	}
	for _, c := range p.comms.list {
		if c.State == ring.CommLive {
			m := convert.CommToProto(falcon.Comm{
				ID:         c.ID,
				Name:       c.Name,
				Size:       c.Size,
				RankInComm: c.Rank,
				Generation: c.Generation,
				Choices:    p.choicesOn(c),
			})
			m.Unseen = uint32(c.Traffic)
			st.Comms = append(st.Comms, m)
		}
	}
	return st
}

// declareMesh adds the mesh that the adapter declares, unless it is none. Engines that
// know no mesh take tp, dp and pp, where these say the same.
func (p *process) declareMesh(st *falconv1.RankState) {
	if p.status.Mesh == "" {
		return
	}
	m, err := falcon.ParseMesh(p.status.Mesh)
	if err != nil {
		return
	}
	st.Mesh = m.String()
	st.Tp = 0
	st.Dp = 0
	st.Pp = 0
	if l := falcon.LayoutOf(m); l.Usual() {
		st.Tp = int32(l.TP)
		st.Dp = int32(l.DP)
		st.Pp = int32(l.PP)
	}
}

// generation is the newest one that the process is of, or was ordered into.
func (p *process) generation() uint64 {
	return max(p.status.GenerationNow, p.status.RejoinOrdered, p.status.SuspendWanted)
}

// commitment is the wire's form of it; nil for none.
func commitment(c ring.Commitment) *falconv1.Commitment {
	if c.Order == 0 {
		return nil
	}
	return &falconv1.Commitment{
		Order:           c.Order,
		Iteration:       c.Iteration,
		Status:          c.Status,
		ResumeIteration: c.Resume,
	}
}

// periodReason returns why no period is known; with step marks, that they count.
func (p *process) periodReason() string {
	switch {
	case p.hasMarks():
		return "iterations come from the framework's step marks"
	case p.iterations.infer.Period() > 0:
		return ""
	case p.status.Coverage&ring.CoverUnhooked != 0:
		return "NCCL is loaded but not called through the hook: start the job with falcon-agent run"
	case len(p.comms.list) == 0:
		return "no communicator was created yet"
	}
	return "the calls so far have no period"
}

func (p *process) deviceName(node falcon.Node) string {
	switch {
	case p.header.Device != "":
		return p.header.Device
	case p.header.LocalRank >= 0:
		return string(falcon.NewDevice(node, p.header.LocalRank))
	}
	return ""
}

// changedState is the state to send when it differs from the one sent last.
func (p *process) changedState(node falcon.Node, nicOf func(falcon.Device) falcon.NIC) *falconv1.RankState {
	st := p.rankState(node)
	if st == nil {
		return nil
	}
	st.Nic = string(nicOf(falcon.Device(st.Device)))
	if !p.reported.replaceState(st) {
		return nil
	}
	return st
}

// endedState is the state of a process that is gone; nil when it never had a rank.
func (p *process) endedState(node falcon.Node, how string) *falconv1.RankState {
	st := p.rankState(node)
	if st != nil {
		st.Alive, st.Exit, st.Said = false, how, p.said
		st.Nic = p.reported.state.GetNic()
		p.reported.replaceState(st)
	}
	return st
}

// report is the state of a process that the engine was sent last.
type report struct {
	state *falconv1.RankState
	wire  []byte // of state, to compare
	spare []byte // wire of the next comparison
}

// replaceState takes a newer state, and reports whether it differs. States are compared as
// bytes, of one encoder and without maps: several times cheaper than field by field.
func (r *report) replaceState(st *falconv1.RankState) bool {
	wire, _ := proto.MarshalOptions{}.MarshalAppend(r.spare[:0], st) // of plain fields: it can't fail
	if r.state != nil && bytes.Equal(wire, r.wire) {
		r.spare = wire
		return false
	}
	r.state, r.wire, r.spare = st, wire, r.wire
	return true
}

func (p *process) String() string {
	return fmt.Sprintf("rank %d (pid %d)", p.rank, p.header.PID)
}
