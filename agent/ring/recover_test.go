package ring

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	falcon "github.com/failslow/falcon"
)

// park writes what falcon_job_park writes.
func park(p *Process, on uint32, generation uint64, status int32, tag int64, steps [2]int64, sums [2]uint64) {
	w := p.mem[p.control : p.control+controlBytes]
	seq := w.readUint64(ctlParkSeq) | 1
	w.writeUint64(ctlParkSeq, seq)
	w.writeUint32(ctlParkOn, on)
	w.writeUint32(ctlParkStatus, uint32(status))
	w.writeUint64(ctlParkGeneration, generation)
	w.writeUint64(ctlParkTag, uint64(tag))
	for i := range steps {
		w.writeUint64(ctlParkSteps+8*uint64(i), uint64(steps[i]))
		w.writeUint64(ctlParkSums+8*uint64(i), sums[i])
	}
	w.writeUint64(ctlParkSeq, seq+1)
}

func TestSuspendIsWrittenAndAnnounced(t *testing.T) {
	p := open(t, blank())
	until := soon()
	if err := p.Suspend(4, until); err != nil {
		t.Fatal(err)
	}
	if c := p.Control(); c.SuspendWanted != 4 ||
		c.Suspended != 0 ||
		p.mem.readUint64(p.control+ctlSuspendUntilNs) != uint64(until) ||
		p.mem.readUint32(p.control+ctlPauseWord) != 1 {
		t.Fatalf("%+v", c)
	}
	p.mem.writeUint64(p.control+ctlSuspendedGeneration, 4)
	p.mem.writeUint64(p.control+ctlSuspendedNs, 99)
	if c := p.Control(); c.Suspended != 4 || c.SuspendedNs != 99 {
		t.Fatalf("%+v", c)
	}
	if err := p.Suspend(4, MonoNs()-1); err != nil || p.mem.readUint64(p.control+ctlSuspendGeneration) != 4 {
		t.Fatalf("the same once more: %v", err)
	}
	for _, bad := range []struct {
		generation uint64
		until      int64
	}{{3, until}, {0, until}, {5, MonoNs() + int64(2*SuspendMax)}} {
		err := p.Suspend(bad.generation, bad.until)
		if !errors.Is(err, ErrRecover) || p.Control().SuspendWanted != 4 {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestStop(t *testing.T) {
	p := open(t, blank())
	p.Stop(7)
	if p.mem.readUint64(p.control+ctlStopGeneration) != 7 ||
		p.mem.readUint32(p.control+ctlPauseWord) != 1 {
		t.Error("not written, or not announced")
	}
	p.Stop(0)
	if p.mem.readUint64(p.control+ctlStopGeneration) != 1 {
		t.Error("a stop of generation 0 is none")
	}
}

// unrolled reads the values of a rejoin by the words of falcon_job.h alone.
func unrolled(p *Process) (r Rejoin) {
	w := p.mem[p.control+ctlRejoin:]
	v := func(i int) int32 { return w.readInt32(ordValues + 4*uint64(i)) }
	r = Rejoin{
		Generation: w.readUint64(ordID),
		Checkpoint: v(0) == 1,
		Resume:     int64(v(1)) + int64(v(2))<<31,
	}
	for i := range int(v(3)) {
		r.MicroBatches = append(r.MicroBatches, v(4+i))
	}
	at := 5 + int(v(3))
	for i := range int(v(at - 1)) {
		r.Moves = append(r.Moves, falcon.ShardMove{
			Rank: falcon.Rank(v(at + 2*i)),
			From: falcon.Rank(v(at + 2*i + 1)),
		})
	}
	return r
}

func TestRejoinIsLaidOut(t *testing.T) {
	for _, r := range []Rejoin{
		{
			Generation:   4,
			Resume:       57,
			MicroBatches: []int32{5, 3},
			Moves: []falcon.ShardMove{{Rank: 1, From: 3}, {
				Rank: 2,
				From: falcon.FromCheckpoint,
			}},
		},
		{Generation: 4, Resume: 0, Checkpoint: true},
		{Generation: 4, Resume: math.MaxInt64 / 2, MicroBatches: make([]int32, orderValues-5)},
		{Generation: 4, Resume: 1<<31 + 7},
	} {
		p := open(t, blank())
		if err := p.PutRejoin(r); err != nil {
			t.Fatal(err)
		}
		at := p.control + ctlRejoin
		got := unrolled(p)
		if got.Generation != r.Generation || got.Resume != r.Resume || got.Checkpoint != r.Checkpoint ||
			!slices.Equal(got.MicroBatches, r.MicroBatches) || !slices.Equal(got.Moves, r.Moves) {
			t.Errorf("%+v became %+v", r, got)
		}
		n := 5 + len(r.MicroBatches) + 2*len(r.Moves)
		if p.mem.readUint32(at+ordN) != uint32(n) ||
			p.mem.readUint32(at+ordKind) != orderRejoin ||
			p.mem.readUint64(at+ordEpoch) != 4 {
			t.Errorf("%d values of kind %d",
				p.mem.readUint32(at+ordN), p.mem.readUint32(at+ordKind))
		}
		if p.Control().RejoinOrdered != 4 ||
			p.mem.readUint64(at+ordSeq)%2 != 0 ||
			p.mem.readUint32(p.control+ctlPauseWord) != 1 {
			t.Error("not announced")
		}
	}
}

func TestRejoinsThatDoNotFit(t *testing.T) {
	move := func(rank, from falcon.Rank) []falcon.ShardMove {
		return []falcon.ShardMove{{Rank: rank, From: from}}
	}
	for name, r := range map[string]Rejoin{
		"generation had":        {Generation: 3},
		"generation 0":          {},
		"behind the suspension": {Generation: 4},
		"iteration below 0":     {Generation: 5, Resume: -1},
		"iteration too far":     {Generation: 5, Resume: math.MaxInt64},
		"too many replicas":     {Generation: 5, MicroBatches: make([]int32, orderValues)},
		"too many moves":        {Generation: 5, Moves: make([]falcon.ShardMove, orderValues)},
		"from itself":           {Generation: 5, Moves: move(1, 1)},
		"from nowhere":          {Generation: 5, Moves: move(1, -1)},
		"no such rank":          {Generation: 5, Moves: move(-2, 1)},
		"a rank named twice": {
			Generation: 5,
			Moves:      append(move(1, 2), move(1, 3)...),
		},
	} {
		p := open(t, blank())
		p.mem.writeUint64(p.control+ctlGenerationNow, 3)
		p.mem.writeUint64(p.control+ctlSuspendGeneration, 5)
		err := p.PutRejoin(r)
		if !errors.Is(err, ErrRecover) ||
			p.Control().RejoinOrdered != 0 ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A replacement begins with the generation that it was launched for, once.
func TestRejoinOfOneMadeAnew(t *testing.T) {
	p := open(t, blank())
	p.mem.writeUint64(p.control+ctlGenerationNow, 4)
	park(p, 1, 4, ParkSuspended, 9, [2]int64{9, 8}, [2]uint64{})
	if err := p.PutRejoin(Rejoin{Generation: 4}); !errors.Is(err, ErrRecover) {
		t.Errorf("a survivor has that generation already: %v", err)
	}
	park(p, 1, 4, ParkJoin, -1, [2]int64{-1, -1}, [2]uint64{})
	if err := p.PutRejoin(Rejoin{Generation: 4}); err != nil {
		t.Error(err)
	}
	if err := p.PutRejoin(Rejoin{Generation: 4}); !errors.Is(err, ErrRecover) {
		t.Errorf("twice: %v", err)
	}
	if err := p.PutRejoin(Rejoin{Generation: 5}); err != nil {
		t.Error(err)
	}
}

func TestParkIsReadWhole(t *testing.T) {
	p := open(t, blank())
	none := [2]int64{falcon.NoIteration, falcon.NoIteration}
	if got, ok := p.Park(); !ok || got.On || got.Hold.Steps != none {
		t.Fatalf("before any: %+v, %v", got, ok)
	}
	park(p, 1, 4, ParkSuspended, 42, [2]int64{41, 42}, [2]uint64{7, 8})
	want := Park{
		On:         true,
		Generation: 4,
		Tag:        42,
		Hold:       falcon.RankHold{Steps: [2]int64{41, 42}, Sums: [2]uint64{7, 8}},
	}
	if got, ok := p.Park(); !ok || got != want {
		t.Fatalf("got %+v, %v", got, ok)
	}
	park(p, 0, 4, ParkSuspended, 42, [2]int64{41, 42}, [2]uint64{7, 8})
	if got, ok := p.Park(); !ok || got.On || got.Hold.Steps != none {
		t.Fatalf("after it: %+v, %v", got, ok)
	}
	p.mem.writeUint64(p.control+ctlParkSeq, 5)
	if got, ok := p.Park(); ok || got.On || got.Hold.Steps != none {
		t.Fatalf("while it is written: %+v, %v", got, ok)
	}
}

func TestParkThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		status int32
		steps  [2]int64
		want   [2]int64
	}{
		{ParkSuspended, [2]int64{-7, math.MaxInt64}, [2]int64{-1, -1}},
		{ParkSuspended, [2]int64{5, 5}, [2]int64{5, -1}}, // one step with two sums: the first counts
		{ParkJoin, [2]int64{5, 6}, [2]int64{-1, -1}},     // a replacement: holds nothing
		{9, [2]int64{-1, 6}, [2]int64{-1, 6}},
	} {
		p := open(t, blank())
		park(p, 1, 4, c.status, math.MinInt64, c.steps, [2]uint64{7, 8})
		got, ok := p.Park()
		if !ok ||
			got.Hold.Steps != c.want ||
			got.Tag != falcon.NoIteration ||
			got.Status > ParkJoin {
			t.Errorf("%+v reads as %+v, %v", c, got, ok)
		}
		for i, s := range got.Hold.Steps {
			if s < 0 && got.Hold.Sums[i] != 0 {
				t.Errorf("%+v: a sum without a step", got)
			}
		}
	}
}

func TestRejoinedIsReadWhole(t *testing.T) {
	p := open(t, blank())
	w := p.mem[p.control : p.control+controlBytes]
	if got, ok := p.Rejoined(); !ok || got != (Rejoined{}) {
		t.Fatalf("before any: %+v, %v", got, ok)
	}
	for off, v := range map[uint64]uint64{
		ctlRejoinOrder:      4,
		ctlRejoinIteration:  57,
		ctlRejoinStepNs:     1e6,
		ctlRejoinStepNs + 8: 2e6,
		ctlRejoinBytes:      1 << 30,
	} {
		w.writeUint64(off, v)
	}
	status := int32(-5)
	w.writeUint32(ctlRejoinStatus, uint32(status))
	if got, ok := p.Rejoined(); !ok ||
		got != (Rejoined{
			Generation: 4,
			Iteration:  57,
			Status:     -5,
			GroupsNs:   1e6,
			StateNs:    2e6,
			Bytes:      1 << 30,
		}) {
		t.Fatalf("got %+v, %v", got, ok)
	}
	w.writeUint64(ctlRejoinStepNs, uint64(2*time.Hour))
	w.writeUint64(ctlRejoinBytes, 1<<60)
	w.writeUint64(ctlRejoinIteration, ^uint64(3))
	if got, _ := p.Rejoined(); got != (Rejoined{Generation: 4, Status: -5}) {
		t.Fatalf("what can't be: %+v", got)
	}
	w.writeUint64(ctlRejoinSeq, 1)
	if got, ok := p.Rejoined(); ok || got != (Rejoined{}) {
		t.Fatalf("while it is written: %+v, %v", got, ok)
	}
}

func TestJobStateIsRead(t *testing.T) {
	p := open(t, blank())
	if got := p.JobState(); got != (JobState{Checkpoint: falcon.NoIteration}) {
		t.Fatalf("before any: %+v", got)
	}
	for off, v := range map[uint64]uint32{
		ctlZeroStage:     1,
		ctlZeroInstances: 2,
		ctlMicroMin:      2,
		ctlMicroMax:      16,
		ctlMicroMultiple: 4,
		ctlCan:           canPark | canCheckpoint,
		ctlVersions:      2,
	} {
		p.mem.writeUint32(p.control+off, v)
	}
	for off, v := range map[uint64]uint64{
		ctlStateBytes:          1 << 30,
		ctlCopyBytesS:          5e9,
		ctlCheckpointIteration: 121,
	} {
		p.mem.writeUint64(p.control+off, v)
	}
	want := JobState{
		ZeRO:          falcon.ZeRO{Stage: 1, Instances: 2},
		Bytes:         1 << 30,
		CopyBytesS:    5e9,
		MicroMin:      2,
		MicroMax:      16,
		MicroMultiple: 4,
		Checkpoint:    120,
		Can: falcon.Can{
			Declared:   true,
			Park:       true,
			Checkpoint: true,
			Versions:   2,
		},
	}
	if got := p.JobState(); got != want {
		t.Fatalf("got %+v", got)
	}
	p.mem.writeUint32(p.control+ctlCan, canNothing)
	if got := p.JobState().Can; got != (falcon.Can{Declared: true, Versions: 2}) {
		t.Fatalf("of one that can do nothing: %+v", got)
	}
	p.mem.writeUint32(p.control+ctlZeroStage, 1<<31)
	p.mem.writeUint64(p.control+ctlCheckpointIteration, 1<<63)
	p.mem.writeUint64(p.control+ctlStateBytes, 1<<63)
	if got := p.JobState(); got.ZeRO.Stage != 0 || got.Checkpoint != falcon.NoIteration || got.Bytes != 0 {
		t.Fatalf("what can't be: %+v", got)
	}
}

func TestRaisedIsRead(t *testing.T) {
	p := open(t, blank())
	text := func(at uint64, s string) {
		copy(p.mem[p.control+at:], s+"\x00")
	}
	text(ctlRaisedKind, "ValueError")
	if got := p.JobState().Raised; !got.IsZero() {
		t.Fatalf("before any: %+v", got)
	}
	text(ctlRaisedWhere, "train.py:41")
	text(ctlRaisedText, strings.Repeat("x", raisedBytes-1))
	p.mem.writeUint32(p.control+ctlRaisedOfPeers, 1)
	p.mem.writeUint64(p.control+ctlRaisedSeq, 2)
	want := falcon.Raised{
		Kind:    "ValueError",
		Where:   "train.py:41",
		Text:    strings.Repeat("x", raisedBytes-1),
		OfPeers: true,
	}
	if got := p.JobState().Raised; got != want {
		t.Fatalf("got %+v", got)
	}
	p.mem.writeUint64(p.control+ctlRaisedSeq, 3)
	if got := p.JobState().Raised; !got.IsZero() {
		t.Fatalf("while it is written: %+v", got)
	}
}

// FuzzRecovery writes anything where the hook tells of a recovery.
func FuzzRecovery(f *testing.F) {
	f.Add(make([]byte, 200))
	f.Add(slices.Repeat([]byte{0xff, 0, 0, 0, 0, 0, 0, 0x7f}, 25))
	m := blank()
	f.Fuzz(func(t *testing.T, half []byte) {
		p, err := parseImage("fuzz", m)
		if err != nil {
			t.Fatal(err)
		}
		words := make([]byte, 200)
		copy(words, half)
		for i := range len(words) / 8 {
			p.mem.writeUint64(p.control+ctlGenerationNow+8*uint64(i), binary.LittleEndian.Uint64(words[8*i:]))
		}
		exerciseRecovery(p)
	})
}

// exerciseRecovery reads all of it and panics where something is out of bounds.
func exerciseRecovery(p *Process) {
	w, _ := p.Park()
	if w.Tag < -1 || w.Hold.Steps[0] < -1 || w.Hold.Steps[1] < -1 || w.SinceNs < 0 || w.Status > ParkJoin ||
		(w.Hold.Steps[0] >= 0 && w.Hold.Steps[0] == w.Hold.Steps[1]) {
		panic(w)
	}
	r, _ := p.Rejoined()
	if r.Iteration < 0 ||
		r.GroupsNs < 0 ||
		r.StateNs < 0 ||
		r.Bytes > placeBytesMax {
		panic(r)
	}
	s := p.JobState()
	if s.ZeRO.Stage < 0 ||
		s.MicroMin < 0 ||
		s.Checkpoint < falcon.NoIteration ||
		s.Bytes > placeBytesMax {
		panic(s)
	}
	p.Control()
	_ = p.Suspend(p.Control().SuspendWanted+1, soon())
	_ = p.PutRejoin(Rejoin{
		Generation: p.Control().SuspendWanted,
		Resume:     3,
		Moves:      []falcon.ShardMove{{Rank: 0, From: 1}},
	})
	p.Stop(1)
}
