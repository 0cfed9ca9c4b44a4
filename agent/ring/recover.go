package ring

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	falcon "github.com/failslow/falcon"
)

// ErrRecover is wrapped when a suspension or a rejoin can't be ordered; the
// process gets no order then.
var ErrRecover = errors.New("ring: no recovery")

// SuspendMax is how long a rank in its optimizer can be left alone.
const SuspendMax = suspendMaxMs * time.Millisecond

// Status of a parked process; a negative one is that of its last rejoin, which failed.
const (
	ParkSuspended int32 = parkSuspended // suspended, or a peer died
	ParkJoin      int32 = parkJoin      // a replacement: holds nothing
)

// Suspend has the process abort its communicators of all generations before
// this one and park; while it is in its optimizer it is left alone until untilNs
// (CLOCK_MONOTONIC; a time that is over: no wait). Control().Suspended
// shows that it was done, Park that the job has left training. The same
// generation again is no new suspension. It can't be taken back: a rejoin ends it.
func (p *Process) Suspend(generation uint64, untilNs int64) error {
	return p.guarded(func() error { return p.writeSuspension(generation, untilNs) })
}

func (p *Process) writeSuspension(generation uint64, untilNs int64) error {
	w := p.controlBlock()
	switch newest, left := w.readUint64(ctlSuspendGeneration), untilNs-MonoNs(); {
	case generation == 0 || generation < newest:
		return fmt.Errorf("%w: generation %d is suspended already, %d is older",
			ErrRecover, newest, generation)
	case left > int64(SuspendMax):
		return fmt.Errorf("%w: a rank in its optimizer would be left alone for %v, at most %v can be",
			ErrRecover, time.Duration(left), SuspendMax)
	}
	w.writeUint64(ctlSuspendUntilNs, uint64(max(untilNs, 0)))
	w.writeUint64(ctlSuspendGeneration, generation)
	p.wakeThreads()
	return nil
}

// Stop has the process end with success where it is parked, or as soon as it parks.
func (p *Process) Stop(generation uint64) {
	p.write64(ctlStopGeneration, max(generation, 1))
	if p.err == nil {
		p.wakeThreads()
	}
}

// Rejoin is the order by which parked processes go on.
type Rejoin struct {
	Generation   uint64
	Resume       int64 // iteration that is trained first
	Checkpoint   bool  // everybody restores from storage
	MicroBatches []int32
	Moves        []falcon.ShardMove // who gets its state from whom; who is not named keeps its own
}

// PutRejoin orders the process to go on. It is taken by a parked process only,
// once, and only when no newer suspension has come; the agent reads Park
// before. The error wraps ErrRecover.
func (p *Process) PutRejoin(r Rejoin) error {
	values, err := r.encodeOrder()
	if err = cmp.Or(p.err, err); err != nil {
		return err
	}
	return p.guarded(func() error { return p.writeRejoin(r, values) })
}

func (p *Process) writeRejoin(r Rejoin, values []int32) error {
	w := p.controlBlock()
	had := w.readUint64(ctlRejoinID)
	// a replacement begins with its own generation
	if park, ok := p.Park(); !ok || !park.On || park.Status != ParkJoin {
		had = max(had, w.readUint64(ctlGenerationNow))
	}
	if r.Generation <= had {
		return fmt.Errorf("%w: generation %d is not above %d, which the process has",
			ErrRecover, r.Generation, had)
	}
	if suspended := w.readUint64(ctlSuspendGeneration); r.Generation < suspended {
		return fmt.Errorf("%w: the process is suspended for generation %d, %d would not wake it",
			ErrRecover, suspended, r.Generation)
	}
	p.writeOrder(
		ctlRejoin,
		falcon.Order{ID: r.Generation, Epoch: r.Generation},
		orderRejoin,
		values,
	)
	w.writeUint64(ctlRejoinID, r.Generation)
	p.wakeThreads()
	return nil
}

// encodeOrder lays the order out as falcon_job.h defines.
func (r Rejoin) encodeOrder() ([]int32, error) {
	bad := func(format string, args ...any) ([]int32, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrRecover}, args...)...)
	}
	n := 5 + len(r.MicroBatches) + 2*len(r.Moves)
	switch {
	case r.Resume < 0 || r.Resume > math.MaxInt64/2:
		return bad("iteration %d can't be resumed at", r.Resume)
	case n > orderValues:
		return bad("%d replicas and %d moves do not fit: they need %d values, there is room for %d",
			len(r.MicroBatches), len(r.Moves), n, orderValues)
	}
	values := make([]int32, 0, n)
	values = append(values,
		0,
		int32(r.Resume&math.MaxInt32),
		int32(r.Resume>>31),
		int32(len(r.MicroBatches)),
	)
	if r.Checkpoint {
		values[0] = 1
	}
	values = append(append(values, r.MicroBatches...), int32(len(r.Moves)))
	seen := map[falcon.Rank]bool{}
	for _, m := range r.Moves {
		if m.Rank < 0 ||
			m.Rank >= ranksMax ||
			seen[m.Rank] ||
			m.From == m.Rank ||
			m.From >= ranksMax ||
			(m.From < 0 && m.From != falcon.FromCheckpoint) {
			return bad("rank %d can't get its state from rank %d, or is named twice", m.Rank, m.From)
		}
		seen[m.Rank] = true
		values = append(values, int32(m.Rank), int32(m.From))
	}
	return values, nil
}

// Park is the state of a process that has left training.
type Park struct {
	On         bool
	Generation uint64 // newest suspension it obeyed; of a replacement that has obeyed none: the launch's
	Status     int32  // ParkSuspended, ParkJoin, or negative: the last rejoin failed with it
	Tag        int64  // step tag when it parked
	Hold       falcon.RankHold
	SinceNs    int64 // CLOCK_MONOTONIC
}

// Park reads it; false while the hook writes it. Steps that no job has read as
// none, and a step that is named twice counts once.
func (p *Process) Park() (out Park, ok bool) {
	ok = p.readConsistent(ctlParkSeq, func(w image) {
		out = Park{
			On:         w.readUint32(ctlParkOn) == 1,
			Generation: w.readUint64(ctlParkGeneration),
			Status:     w.readInt32(ctlParkStatus),
			Tag:        w.readInt64(ctlParkTag),
			SinceNs:    w.readInt64(ctlParkNs),
		}
		for i := range out.Hold.Steps {
			out.Hold.Steps[i] = w.readInt64(ctlParkSteps + 8*uint64(i))
			out.Hold.Sums[i] = w.readUint64(ctlParkSums + 8*uint64(i))
		}
	})
	if !ok || !out.On {
		return Park{Hold: falcon.RankHold{Steps: [2]int64{falcon.NoIteration, falcon.NoIteration}}}, ok
	}
	return out.validated(), true
}

// validated takes out what can't be.
func (p Park) validated() Park {
	for i, s := range p.Hold.Steps {
		if s < 0 ||
			s > math.MaxInt64/2 ||
			(i > 0 && s == p.Hold.Steps[0]) ||
			p.Status == ParkJoin {
			p.Hold.Steps[i] = falcon.NoIteration
			p.Hold.Sums[i] = 0
		}
	}
	p.Status = min(p.Status, ParkJoin)
	p.Tag = min(max(p.Tag, falcon.NoIteration), math.MaxInt64/2)
	p.SinceNs = max(p.SinceNs, 0)
	return p
}

// Rejoined is what became of the newest rejoin. Generation 0 means none.
type Rejoined struct {
	Generation        uint64
	Iteration         int64
	Status            int32 // 0 = trains again
	GroupsNs, StateNs int64 // both 0 where one of them can't be
	Bytes             uint64
}

// Rejoined reads it; false while the hook writes it.
func (p *Process) Rejoined() (out Rejoined, ok bool) {
	ok = p.readConsistent(ctlRejoinSeq, func(w image) {
		out = Rejoined{
			Generation: w.readUint64(ctlRejoinOrder),
			Iteration:  w.readInt64(ctlRejoinIteration),
			Status:     w.readInt32(ctlRejoinStatus),
			GroupsNs:   w.readInt64(ctlRejoinStepNs),
			StateNs:    w.readInt64(ctlRejoinStepNs + 8),
			Bytes:      w.readUint64(ctlRejoinBytes),
		}
	})
	if !ok || out.Generation == 0 {
		return Rejoined{}, ok
	}
	limit := int64(placeStepMax)
	if out.GroupsNs < 0 ||
		out.GroupsNs > limit ||
		out.StateNs < 0 ||
		out.StateNs > limit {
		out.GroupsNs, out.StateNs = 0, 0
	}
	if out.Bytes > placeBytesMax {
		out.Bytes = 0
	}
	out.Iteration = min(max(out.Iteration, 0), math.MaxInt64/2)
	return out, true
}

// JobState is what the adapter declares of the job's state; 0 = unknown.
type JobState struct {
	ZeRO                              falcon.ZeRO
	Bytes, CopyBytesS                 uint64
	MicroMin, MicroMax, MicroMultiple int
	Can                               falcon.Can
	Raised                            falcon.Raised
	// iteration that a restart would begin with, falcon.NoIteration = storage holds none
	Checkpoint int64
}

// JobState reads it. Values that no job has read as unknown.
func (p *Process) JobState() (s JobState) {
	s.Checkpoint = falcon.NoIteration
	p.access(func() {
		w := p.controlBlock()
		s = JobState{
			ZeRO: falcon.ZeRO{
				Stage:     clampSize(w.readInt32(ctlZeroStage)),
				Instances: clampSize(w.readInt32(ctlZeroInstances)),
			},
			Bytes:         w.readUint64(ctlStateBytes),
			CopyBytesS:    w.readUint64(ctlCopyBytesS),
			MicroMin:      clampSize(w.readInt32(ctlMicroMin)),
			MicroMax:      clampSize(w.readInt32(ctlMicroMax)),
			MicroMultiple: clampSize(w.readInt32(ctlMicroMultiple)),
			Can:           w.readCan(),
			Raised:        w.readRaised(),
			Checkpoint:    falcon.NoIteration,
		}
		if next := w.readInt64(ctlCheckpointIteration); next > 0 && next <= math.MaxInt64/2 {
			s.Checkpoint = next - 1
		}
		if s.Bytes > placeBytesMax {
			s.Bytes = 0
		}
	})
	return s
}

// versionsMost bounds what a process can claim to hold.
const versionsMost = 64

// readCan is what the adapter declares that the process can do.
func (m image) readCan() falcon.Can {
	bits := m.readUint32(ctlCan)
	if bits == 0 {
		return falcon.Can{}
	}
	return falcon.Can{
		Declared:   true,
		Park:       bits&canPark != 0,
		Split:      bits&canSplit != 0,
		Place:      bits&canPlace != 0,
		Checkpoint: bits&canCheckpoint != 0,
		Versions:   int(min(max(m.readInt32(ctlVersions), 0), versionsMost)),
	}
}

// readRaised is the error that the program ends with; none while it is being written.
func (m image) readRaised() (r falcon.Raised) {
	if m.readUint64(ctlRaisedSeq) == 0 {
		return r
	}
	whole := m.readConsistent(ctlRaisedSeq, func() {
		r = falcon.Raised{
			Kind:    m.readText(ctlRaisedKind, raisedBytes),
			Where:   m.readText(ctlRaisedWhere, raisedBytes),
			Text:    m.readText(ctlRaisedText, raisedBytes),
			OfPeers: m.readUint32(ctlRaisedOfPeers) != 0,
		}
	})
	if !whole {
		return falcon.Raised{}
	}
	return r
}

// readConsistent reads fields of the control block that the hook writes under the
// sequence at seq; false while it writes them.
func (p *Process) readConsistent(seq uint64, read func(image)) (ok bool) {
	p.access(func() {
		w := p.controlBlock()
		ok = w.readConsistent(seq, func() { read(w) })
	})
	return ok
}
