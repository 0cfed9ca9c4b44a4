package ring

import (
	"bytes"
	"encoding/binary"
	"math"

	falcon "github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/nccl"
)

// Control is what the hook reports of its process. Times are CLOCK_MONOTONIC ns.
type Control struct {
	HeartbeatNs        int64 // the side thread's last beat; every 100 ms
	Iteration          int64 // begun last, -1 before the first
	StepTag            int64 // i in forward and backward, -1 in the optimizer, i+1 after it
	IterationStartNs   int64
	MarksWritten       uint64 // see Marks
	CommittedOrder     uint64
	CommittedIteration int64 // first one that the order holds for
	CommittedStatus    int32 // 0 = applied
	MicroBatches       int   // per iteration on this rank, 0 when the job does not declare it
	Declared
	Described       uint32
	TimingsWritten  uint64
	TimingsLost     uint64
	RecordsLost     uint64 // calls of threads that found no free ring
	Coverage        uint32
	ProfileDone     uint32 // window whose timings are all written
	PausedNs        int64
	TestWorkspace   uint64 // bytes reserved for tests, 0 = none
	ResumeIteration int64  // of the newest checkpoint that an order asked for, 0 = none
	Generation      uint64 // of the launch that started the process, 0 = not by a launch
	GenerationNow   uint64 // of the communicators in use: the launch's, then of the newest rejoin taken
	SuspendWanted   uint64 // newest suspension that was ordered, 0 = none
	Suspended       uint64 // newest suspension obeyed: all older communicators are aborted
	SuspendedNs     int64  // CLOCK_MONOTONIC when that was done
	RejoinOrdered   uint64 // newest rejoin in the mailbox, 0 = none
	WaitingSinceNs  int64  // CLOCK_MONOTONIC; 0 = does not wait, or unknown without CoverWaiting
	Bound           Binding
	Elastic         Elastic
	Ended           End // as the process said before it went; the zero value while it has not
}

// Elastic is what a worker of an elastic agent, as torchrun, declares of that; the zero value is none.
type Elastic struct {
	Restarts int // how often it will still start its workers again
	Parent   int // of the process when it began, in its own PID namespace
}

// Declared is the layout as the adapter declares it.
type Declared struct {
	TP, DP, PP int              // 0 = unknown
	NCCL       nccl.Environment // what bounds NCCL's choices
	// the same by dimensions (falcon.ParseMesh), as the process wrote it; "" = none
	Mesh string
}

// Commitment is the newest order that a rank has voted for; Order 0 is none.
type Commitment struct {
	Order     uint64
	Iteration int64 // first that it holds for
	Status    int32 // 0 = applied
	Resume    int64 // checkpoints: the iteration that a restart begins with
}

// Committed is the newest order that the rank has voted for.
func (c Control) Committed() Commitment {
	return Commitment{
		Order:     c.CommittedOrder,
		Iteration: c.CommittedIteration,
		Status:    c.CommittedStatus,
		Resume:    c.ResumeIteration,
	}
}

// Control reads the hook's half of the control block.
func (p *Process) Control() (c Control) {
	p.access(func() { c = p.controlBlock().readControl() })
	return c
}

func (p *Process) controlBlock() image {
	return p.mem[p.control : p.control+controlBytes]
}

func (m image) readControl() Control {
	return Control{
		HeartbeatNs:        m.readInt64(ctlHeartbeatNs),
		Iteration:          m.readInt64(ctlIteration),
		StepTag:            m.readInt64(ctlStepTag),
		IterationStartNs:   m.readInt64(ctlIterationStartNs),
		MarksWritten:       m.readUint64(ctlIterationsDone),
		CommittedOrder:     m.readUint64(ctlCommittedOrder),
		CommittedIteration: m.readInt64(ctlCommittedIteration),
		CommittedStatus:    m.readInt32(ctlCommittedStatus),
		MicroBatches:       clampSize(m.readInt32(ctlMicroBatches)),
		Declared: Declared{
			TP:   clampSize(m.readInt32(ctlTP)),
			DP:   clampSize(m.readInt32(ctlDP)),
			PP:   clampSize(m.readInt32(ctlPP)),
			Mesh: m.readMesh(),
			NCCL: m.readEnvironment(),
		},
		Described:       m.readUint32(ctlDescribeSeq),
		TimingsWritten:  m.readUint64(ctlTimingHead),
		TimingsLost:     m.readUint64(ctlTimingLost),
		RecordsLost:     m.readUint64(ctlRecordsLost),
		Coverage:        m.readUint32(ctlCoverage),
		ProfileDone:     m.readUint32(ctlProfileDone),
		PausedNs:        m.readInt64(ctlPausedNs),
		TestWorkspace:   m.readUint64(ctlTestWorkspace),
		ResumeIteration: max(m.readInt64(ctlResumeIteration), 0),
		Generation:      m.readUint64(ctlGeneration),
		GenerationNow:   m.readUint64(ctlGenerationNow),
		SuspendWanted:   m.readUint64(ctlSuspendGeneration),
		WaitingSinceNs:  max(m.readInt64(ctlWaitingSinceNs), 0),
		Ended:           m.exitMark(ctlEndedNs, ctlEndedStatus),
		Elastic: Elastic{
			Restarts: clampSize(int32(m.readUint32(ctlElasticRestarts))),
			Parent:   clampSize(int32(m.readUint32(ctlElasticParent))),
		},
		Bound: Binding{
			How:  Bound(m.readUint32(ctlBound)),
			NCCL: int(m.readUint32(ctlNcclVersion)),
		},
		Suspended:     m.readUint64(ctlSuspendedGeneration),
		SuspendedNs:   max(m.readInt64(ctlSuspendedNs), 0),
		RejoinOrdered: m.readUint64(ctlRejoinID),
	}
}

// readEnvironment is what bounds NCCL's choices, once the hook has read it.
func (m image) readEnvironment() nccl.Environment {
	if m.readUint32(ctlNcclEnv) == 0 {
		return nccl.Environment{}
	}
	return nccl.Environment{
		Algo:     printableName(m.copyName(ctlNcclAlgo)),
		Proto:    printableName(m.copyName(ctlNcclProto)),
		Channels: uint8(min(m.readUint32(ctlNcclChannels), math.MaxUint8)),
	}
}

// readMesh is the text of the declared mesh, as the process wrote it; empty while it is
// being written.
func (m image) readMesh() string {
	if m.readUint64(ctlMeshSeq) == 0 {
		return ""
	}
	text := ""
	if !m.readConsistent(ctlMeshSeq, func() {
		text = m.readText(ctlMesh, meshBytes)
	}) {
		return ""
	}
	return text
}

// readText is a text of at most so many bytes, a multiple of 8, as the process wrote it.
func (m image) readText(at uint64, most int) string {
	b := make([]byte, most)
	for i := range most / 8 {
		binary.LittleEndian.PutUint64(b[8*i:], m.readUint64(at+8*uint64(i)))
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// clampSize keeps a declared size sane: a job has no dimension over 2^20.
func clampSize(v int32) int {
	if v < 0 || v > 1<<20 {
		return 0
	}
	return int(v)
}

// Mark is the exact begin of one iteration.
type Mark struct {
	Iteration int64
	StartNs   int64 // CLOCK_MONOTONIC
	PausedNs  int64 // held by Falcon so far
}

// Marks appends the marks from number next on to out[:0], at most the last 64,
// and returns the number to ask for next time and how many were overwritten.
func (p *Process) Marks(next uint64, out []Mark) (marks []Mark, following, lost uint64) {
	out = out[:0]
	p.access(func() {
		written := p.mem.readUint64(p.control + ctlIterationsDone)
		if written > next && written-next > marksMax {
			lost = written - next - marksMax
			next += lost
		}
		for ; next < written; next++ {
			if m, ok := p.markAt(next); ok {
				out = append(out, m)
			} else {
				lost++
			}
		}
	})
	return out, next, lost
}

func (p *Process) markAt(k uint64) (m Mark, ok bool) {
	at := p.control + ctlMarks + k%marksMax*markBytes
	w := p.mem[at : at+markBytes]
	if w.readUint64(markSeq) != k+1 {
		return m, false
	}
	m = Mark{
		Iteration: w.readInt64(markIteration),
		StartNs:   w.readInt64(markStartNs),
		PausedNs:  w.readInt64(markPausedNs),
	}
	return m, w.readUint64(markSeq) == k+1
}

// Beat shows the hook that the agent runs. With keepParked a process that is parked waits on: its
// longest wait counts from now. Only for one that is parked, as it ends the time of a rank in its optimizer.
func (p *Process) Beat(keepParked bool) {
	now := uint64(MonoNs())
	if keepParked {
		p.write64(ctlSuspendUntilNs, now)
	}
	p.write64(ctlAgentAliveNs, now)
}

// SetPeriod notes the inferred calls per iteration and the class of the anchor
// call, for whoever reads the memory of a process.
func (p *Process) SetPeriod(calls, anchor uint32) {
	p.write32(ctlPeriod, calls)
	p.write32(ctlAnchor, anchor)
}

// CommMask selects communicators by slot; the zero value selects all.
type CommMask [commsMax / 64]uint64

// Add selects one slot.
func (m *CommMask) Add(slot uint32) {
	if slot < commsMax {
		m[slot/64] |= 1 << (slot % 64)
	}
}

// StartProfile asks for a profile window with this id (never 0, never the last
// one) until untilNs (CLOCK_MONOTONIC), when the hook ends it by itself.
// Its timings are complete once Control().ProfileDone == window.
func (p *Process) StartProfile(window uint32, untilNs int64, comms CommMask) {
	p.write64(ctlProfileUntilNs, uint64(untilNs))
	for i, m := range comms {
		p.write64(ctlProfileComms+8*uint64(i), m)
	}
	p.write32(ctlProfileWindow, window)
	p.write32(ctlMode, modeProfile)
	p.wakeSideThread()
}

// StopProfile ends the window now; timings on the device are still awaited.
func (p *Process) StopProfile() {
	p.write32(ctlMode, modeMonitor)
	p.wakeSideThread()
}

// PutOrder places an order in the mailbox and announces it. Its id must be
// larger than all before it. The error wraps ErrOrder.
func (p *Process) PutOrder(o falcon.Order) error {
	kind, values, err := p.checkOrder(o)
	if err != nil {
		return err
	}
	return p.guarded(func() error {
		p.writeOrder(ctlOrders+o.ID%orderSlots*orderBytes, o, kind, values)
		p.mem.writeUint64(p.control+ctlNewestOrder, o.ID)
		return nil
	})
}

// writeOrder fills one slot of the mailbox.
func (p *Process) writeOrder(slot uint64, o falcon.Order, kind uint32, values []int32) {
	at := p.control + slot
	w := p.mem[at : at+orderBytes]
	seq := w.readUint64(ordSeq) | 1
	w.writeUint64(ordSeq, seq)
	w.writeUint64(ordID, o.ID)
	w.writeUint64(ordEpoch, o.Epoch)
	w.writeUint32(ordKind, kind)
	w.writeUint32(ordN, uint32(len(values)))
	for i, v := range values {
		w.writeUint32(ordValues+4*uint64(i), uint32(v))
	}
	w.writeUint64(ordSeq, seq+1)
}

// NewestOrder is the id of the newest order in the mailbox, 0 for none.
func (p *Process) NewestOrder() (id uint64) {
	p.access(func() { id = p.mem.readUint64(p.control + ctlNewestOrder) })
	return id
}

func (p *Process) write64(off, v uint64) {
	p.access(func() { p.mem.writeUint64(p.control+off, v) })
}

func (p *Process) write32(off uint64, v uint32) {
	p.access(func() { p.mem.writeUint32(p.control+off, v) })
}

// wakeSideThread rouses the hook's side thread, which sleeps on the mode word. Without
// it the hook notices within its heartbeat of 100 ms.
func (p *Process) wakeSideThread() {
	if p.err != nil {
		return
	}
	futexWake(p.mem.pointer32(p.control + ctlMode))
}
