package ring

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// alive puts a live communicator with so many calls into a slot.
func alive(p *Process, slot, id, calls uint64) *uint64 {
	at := p.comms + slot*commBytes
	p.mem.writeUint64(at+comID, id)
	p.mem.writeUint64(at+comGate, calls)
	p.mem.writeUint32(at+comState, uint32(CommLive))
	p.mem.writeUint64(at+comSeq, p.mem.readUint64(at+comSeq)+2)
	return p.mem.pointer64(at + comGate)
}

func soon() int64 {
	return MonoNs() + int64(5*time.Second)
}

func TestArmWritesGatesAndOrder(t *testing.T) {
	p := open(t, blank())
	gate := alive(p, 3, 70, 1000)
	other := alive(p, 4, 71, 5)
	left := alive(p, 5, 72, 9)
	p.mem.writeUint32(p.comms+5*commBytes+comState, uint32(CommGone))
	until := soon()
	if err := p.Arm(8, until, 41, []Cut{{70, 1010}, {71, 5}}); err != nil {
		t.Fatal(err)
	}
	if *gate != gateArmed|1010<<gateCutShift|1000 ||
		*other != gateArmed|5<<gateCutShift|5 ||
		*left != 9 {
		t.Errorf("gates %#x %#x %#x", *gate, *other, *left)
	}
	if s := p.Pause(); s.Wanted != 8 || s.UntilNs != until || p.mem.readUint32(p.control+ctlPauseWord) != 1 {
		t.Errorf("order %+v, word %d", s, p.mem.readUint32(p.control+ctlPauseWord))
	}
	armed := p.mem.readUint64(p.control + ctlPauseArmed)
	begins := p.mem.readUint64(p.control + ctlPauseBoundary)
	if armed != 8 || begins != 42 {
		t.Errorf("armed %d, the boundary is reported as %d", armed, begins)
	}
	c := p.Comms(nil)
	if !c[0].Armed || c[0].Cut != 1010 || c[0].Calls != 1000 || c[2].Armed {
		t.Errorf("table %+v", c)
	}
	p.Release()
	if s := p.Pause(); s.Wanted != 0 ||
		*gate != 1000 ||
		*other != 5 ||
		p.mem.readUint32(p.control+ctlPauseWord) != 2 {
		t.Errorf("after the release: %+v, gates %#x %#x", s, *gate, *other)
	}
}

// A cut beyond 2^23 calls is given by its low bits, and read back whole.
func TestCutsOfOldCommunicators(t *testing.T) {
	p := open(t, blank())
	const calls = 5<<30 - 3
	gate := alive(p, 0, 70, calls)
	if err := p.Arm(1, soon(), -1, []Cut{{70, calls + 10}}); err != nil {
		t.Fatal(err)
	}
	c := p.Comms(nil)[0]
	if c.Cut != calls+10 || c.Calls != calls || *gate>>gateCutShift&gateCutMask != 7 {
		t.Errorf("%+v, gate %#x", c, *gate)
	}
}

func TestArmRefusesAndHoldsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		order uint64
		until int64
		cuts  []Cut
		say   string
	}{
		"missed":       {1, soon(), []Cut{{70, 1001}, {71, 4}}, "missed"},
		"unknown":      {1, soon(), []Cut{{70, 1001}, {99, 4}}, "0000000000000063 is not alive"},
		"out of sight": {1, soon(), []Cut{{0, 4}}, "not alive"},
		"too far":      {1, soon(), []Cut{{70, 1000 + 1<<23}, {71, 5}}, "calls ahead"},
		"new":          {1, soon(), []Cut{{70, 1001}}, "0000000000000047 was made since"},
		"no cut":       {1, soon(), nil, "no communicator"},
		"no number":    {0, soon(), []Cut{{70, 1001}, {71, 5}}, "number"},
		"past":         {1, MonoNs() - 1, []Cut{{70, 1001}, {71, 5}}, "not within"},
		"too long":     {1, MonoNs() + int64(2*PauseMax), []Cut{{70, 1001}, {71, 5}}, "not within"},
	} {
		p := open(t, blank())
		gate := alive(p, 3, 70, 1000)
		other := alive(p, 4, 71, 5)
		if name == "out of sight" {
			alive(p, 6, 0, 3)
		}
		err := p.Arm(c.order, c.until, -1, c.cuts)
		if !errors.Is(err, ErrPause) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
		if *gate != 1000 || *other != 5 || p.Pause().Wanted != 0 {
			t.Errorf("%s: something is held: %#x %#x %+v", name, *gate, *other, p.Pause())
		}
	}
	p := open(t, blank())
	alive(p, 3, 70, 1000)
	if err := errors.Join(
		p.Arm(1, soon(), -1, []Cut{{70, 1001}}),
		p.Arm(2, soon(), -1, []Cut{{70, 1002}}),
	); !errors.Is(err, ErrPause) ||
		p.Pause().Wanted != 1 {
		t.Errorf("a second pause: %v, in force %d", err, p.Pause().Wanted)
	}
}

// An order that the hook has not let go of would take the next one's gates with
// it.
func TestArmWaitsForTheEndOfTheLastOrder(t *testing.T) {
	p := open(t, blank())
	gate := alive(p, 3, 70, 1000)
	for state := PauseArmed; state <= PauseQuiet; state++ {
		p.mem.writeUint32(p.control+ctlPauseState, uint32(state))
		err := p.Arm(2, soon(), -1, []Cut{{70, 1001}})
		if !errors.Is(err, ErrMissed) || *gate != 1000 || p.Pause().Wanted != 0 {
			t.Errorf("while the last one is %s: %v, gate %#x", state, err, *gate)
		}
	}
	for state := PauseReleased; state <= PauseRefused; state++ {
		p.mem.writeUint32(p.control+ctlPauseState, uint32(state))
		if err := p.Arm(2, soon(), -1, []Cut{{70, 1001}}); err != nil {
			t.Errorf("when the last one is %s: %v", state, err)
		}
		p.Release()
	}
}

// The gate's promise, under a training thread that calls all the time: either
// the cut is missed, and then nothing is held, or exactly the calls up to the
// cut pass.
func TestArmAgainstACallingThread(t *testing.T) {
	missed, held := 0, 0
	for round := range 200 {
		p := open(t, blank())
		gate := alive(p, 0, 70, 0)
		var trapped atomic.Bool
		var thread sync.WaitGroup
		thread.Go(func() { callUntilTrapped(gate, &trapped) })
		ahead := uint64(round % 40)
		cut := atomic.LoadUint64(gate)&gateCountMask + ahead
		err := p.Arm(1, soon(), -1, []Cut{{70, cut}})
		if err != nil {
			missed++
			for from := atomic.LoadUint64(
				gate,
			) & gateCountMask; atomic.LoadUint64(gate)&gateCountMask < from+10; {
				runtime.Gosched() // it goes on
			}
			trapped.Store(true)
			thread.Wait()
			continue
		}
		held++
		thread.Wait()
		if count := atomic.LoadUint64(gate) & gateCountMask; count != cut {
			t.Fatalf("%d calls passed a cut at %d", count, cut)
		}
	}
	t.Logf("%d missed, %d held", missed, held)
	if held == 0 {
		t.Error("no cut ever held")
	}
}

// callUntilTrapped does what the hook does with a gate.
func callUntilTrapped(gate *uint64, trapped *atomic.Bool) {
	for !trapped.Load() {
		old := atomic.LoadUint64(gate)
		if old&gateArmed != 0 && old>>gateCutShift&gateCutMask == old&gateCountMask&gateCutMask {
			return
		}
		atomic.CompareAndSwapUint64(gate, old, old+1)
		runtime.Gosched()
	}
}

func TestPauseIsReadAndChecked(t *testing.T) {
	p := open(t, blank())
	for off, v := range map[uint64]uint64{
		ctlPauseSeen:  8,
		ctlTrappedNs:  100,
		ctlQuietNs:    150,
		ctlReleasedNs: 400,
	} {
		p.mem.writeUint64(p.control+off, v)
	}
	p.mem.writeUint32(p.control+ctlPauseState, uint32(PauseReleased))
	p.mem.writeUint32(p.control+ctlPauseReason, 2)
	want := Pause{
		Seen:       8,
		State:      PauseReleased,
		Reason:     2,
		TrappedNs:  100,
		QuietNs:    150,
		ReleasedNs: 400,
	}
	if got := p.Pause(); got != want || !got.State.Over() || got.HeldNs(1e9) != 300 {
		t.Errorf("got %+v, held %d", got, got.HeldNs(1e9))
	}
	p.mem.writeUint32(p.control+ctlPauseState, 99)
	p.mem.writeUint32(p.control+ctlPauseReason, 99)
	if got := p.Pause(); got.State != PauseRefused || got.Reason.String() == "" {
		t.Errorf("unknown state reads as %v (%v)", got.State, got.Reason)
	}
	for _, s := range []Pause{{TrappedNs: -5, ReleasedNs: 1 << 62}, {TrappedNs: 50, ReleasedNs: 40}, {}} {
		if held := s.HeldNs(60); held != 0 {
			t.Errorf("%+v was held for %d ns", s, held)
		}
	}
	if held := (Pause{TrappedNs: 1, ReleasedNs: 1 << 62}).HeldNs(0); held != int64(PauseMax) {
		t.Errorf("held %d", held)
	}
}

func link(id uint64) Test {
	return Test{
		ID:      id,
		UntilNs: 77,
		Kind:    TestLink,
		Repeats: 3,
		Bytes:   1 << 20,
		Side:    1,
		IDs:     [2][]byte{bytes.Repeat([]byte{1, 2}, 64), bytes.Repeat([]byte{3, 4}, 64)},
	}
}

func TestPutTestFillsTheMailbox(t *testing.T) {
	p := open(t, blank())
	if err := p.PutTest(link(5)); err != nil {
		t.Fatal(err)
	}
	w := p.mem[p.control+ctlTest:]
	if w.readUint64(tstID) != 5 ||
		w.readUint64(tstUntilNs) != 77 ||
		w.readUint64(tstBytes) != 1<<20 ||
		w.readUint32(tstKind) != 3 ||
		w.readUint32(tstRepeats) != 3 ||
		w.readUint32(tstSide) != 1 ||
		w.readUint64(tstSeq) != 2 {
		t.Errorf("mailbox % x", []byte(w[:64]))
	}
	ids := append(bytes.Repeat([]byte{1, 2}, 64), bytes.Repeat([]byte{3, 4}, 64)...)
	if !bytes.Equal(w[tstIDs:tstIDs+256], ids) ||
		p.mem.readUint32(p.control+ctlPauseWord) != 1 {
		t.Errorf("ids % x, word %d",
			[]byte(w[tstIDs:tstIDs+256]), p.mem.readUint32(p.control+ctlPauseWord))
	}
}

func TestPutTestRefuses(t *testing.T) {
	p := open(t, blank())
	if err := p.PutTest(link(5)); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Test){
		"old number": func(x *Test) { x.ID = 5 },
		"no repeats": func(x *Test) { x.Repeats = 0 },
		"many":       func(x *Test) { x.Repeats = 65 },
		"messages": func(x *Test) {
			x.Kind = TestLink
			x.Bytes = 1
			x.N = TestMessagesMax + 1
		},
		"no bytes":    func(x *Test) { x.Bytes = 0 },
		"side":        func(x *Test) { x.Side = 2 },
		"short id":    func(x *Test) { x.IDs[1] = x.IDs[1][:127] },
		"kind":        func(x *Test) { x.Kind = 4 },
		"no side":     func(x *Test) { x.Kind = TestGEMM },
		"ids of none": func(x *Test) { x.Kind = TestMint },
	} {
		x := link(6)
		spoil(&x)
		if err := p.PutTest(x); !errors.Is(err, ErrTest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p.mem.readUint64(p.control+ctlTest+tstID) != 5 {
		t.Error("a refused test reached the mailbox")
	}
}

// result writes one as the hook does.
func result(p *Process, id uint64, kind TestKind, status TestStatus, repeats uint32, median, best uint64) {
	w := p.mem[p.control+ctlResult : p.control+ctlResult+testResultBytes]
	w.writeUint64(resSeq, w.readUint64(resSeq)|1)
	w.writeUint32(resKind, uint32(kind))
	w.writeUint32(resStatus, uint32(status))
	w.writeUint32(resRepeats, repeats)
	w.writeUint64(resMedianNs, median)
	w.writeUint64(resBestNs, best)
	w.writeUint64(resSetupNs, 9)
	copy(w[resIDs:], bytes.Repeat([]byte{7}, 256))
	w.writeUint64(resID, id)
	w.writeUint64(resSeq, w.readUint64(resSeq)+1)
}

func TestResultsAreCopiedAndChecked(t *testing.T) {
	p := open(t, blank())
	if _, ok := p.TestResult(); ok {
		t.Error("a result before any")
	}
	result(p, 5, TestGEMM, TestDone, 8, 2000, 1000)
	if r, ok := p.TestResult(); !ok ||
		r.ID != 5 ||
		r.Status != TestDone ||
		r.MedianNs != 2000 ||
		r.BestNs != 1000 ||
		r.SetupNs != 9 ||
		r.Repeats != 8 ||
		r.IDs[0] != nil {
		t.Errorf("%+v %v", r, ok)
	}
	result(p, 6, TestMint, TestDone, 0, 0, 0)
	if r, _ := p.TestResult(); r.Status != TestDone || len(r.IDs[0]) != UniqueIDBytes || r.IDs[1][127] != 7 {
		t.Errorf("%+v", r)
	}
	for name, write := range map[string]func(){
		"kind":   func() { result(p, 7, 9, TestDone, 8, 2000, 1000) },
		"status": func() { result(p, 7, TestGEMM, 9, 8, 2000, 1000) },
		"repeats": func() {
			result(p, 7, TestGEMM, TestDone, 1<<31, 2000, 1000)
		},
		"forever": func() {
			result(p, 7, TestGEMM, TestDone, 8, 1<<62, 1000)
		},
		"negative": func() {
			result(p, 7, TestGEMM, TestDone, 8, 2000, 1<<63)
		},
		"reversed": func() { result(p, 7, TestGEMM, TestDone, 8, 1000, 2000) },
		"no time":  func() { result(p, 7, TestLink, TestDone, 0, 0, 0) },
	} {
		write()
		r, ok := p.TestResult()
		if !ok ||
			r.Status != TestFailed ||
			r.Reason.String() == "" ||
			r.MedianNs != 0 {
			t.Errorf("%s: %+v %v", name, r, ok)
		}
	}
	p.mem.writeUint64(p.control+ctlResult+resSeq, 3) // its writer died
	if r, ok := p.TestResult(); ok {
		t.Errorf("half-written: %+v", r)
	}
}

// start gives the peer a command whose answer comes later.
func (p *peer) start(verb string, arg int64) <-chan int64 {
	out := make(chan int64, 1)
	go func() { out <- p.do(verb, arg) }()
	return out
}

func awaitPause(t *testing.T, r *Process, want PauseState) Pause {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		s := r.Pause()
		if s.State == want {
			return s
		}
		if time.Now().After(end) || s.State == PauseRefused {
			t.Fatalf("the hook is at %v (%v), not at %v", s.State, s.Reason, want)
		}
	}
}

// TestPauseAgainstTheHook: a real process runs up to the cut and no further,
// answers a test, and goes on at the release; it resumes by itself at the
// deadline; and what it was held is given by its marks.
func TestPauseAgainstTheHook(t *testing.T) {
	p := startPeer(t)
	p.do("init", 5)
	p.do("iteration", 0)
	p.do("calls", 10)
	r := p.open()
	id := r.Comms(nil)[0].ID
	if err := r.Arm(1, MonoNs()+int64(20*time.Second), -1, []Cut{{id, 9}}); !errors.Is(err, ErrPause) ||
		!strings.Contains(err.Error(), "missed") {
		t.Fatalf("a cut behind the count: %v", err)
	}
	begun := MonoNs()
	if err := r.Arm(2, begun+int64(20*time.Second), -1, []Cut{{id, 15}}); err != nil {
		t.Fatal(err)
	}
	answer := p.start("calls", 20)
	s := awaitPause(t, r, PauseQuiet)
	if c := r.Comms(nil)[0]; c.Calls != 15 ||
		!c.Armed ||
		c.Cut != 15 ||
		s.Seen != 2 ||
		s.TrappedNs == 0 ||
		s.QuietNs < s.TrappedNs {
		t.Fatalf("held at %+v, %+v", c, s)
	}
	if err := r.PutTest(Test{
		ID:      3,
		UntilNs: MonoNs() + int64(10*time.Second),
		Kind:    TestMint,
		Repeats: 1,
	}); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, r, 3)
	r.Release()
	if n := <-answer; n != 20 {
		t.Fatalf("the peer made %d calls", n)
	}
	s = awaitPause(t, r, PauseReleased)
	if c := r.Comms(nil)[0]; c.Calls != 30 || c.Armed {
		t.Fatalf("after the release: %+v", c)
	}
	checkHeld(t, p, r, s, begun)
	checkExpiry(t, p, r, id)
}

// checkAnswer wants a result; without an NCCL that mints ids it is a refusal.
func checkAnswer(t *testing.T, r *Process, id uint64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got, ok := r.TestResult()
		if ok && got.ID == id && got.Status > TestRunning {
			if got.Status == TestDone && len(got.IDs[0]) != UniqueIDBytes ||
				got.Status != TestDone && got.Reason.String() == "" {
				t.Fatalf("result %+v", got)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no result but %+v", got)
		}
	}
}

// checkHeld compares the hold by the order with the one by the marks, which ends
// when the thread has woken, and so is no shorter.
func checkHeld(t *testing.T, p *peer, r *Process, s Pause, begunNs int64) {
	t.Helper()
	p.do("iteration", 1)
	marks, _, _ := r.Marks(0, nil)
	held, announced := s.HeldNs(0), marks[len(marks)-1].PausedNs
	if held <= 0 ||
		announced < held ||
		announced > MonoNs()-begunNs ||
		announced != r.Control().PausedNs {
		t.Fatalf("held %d ns, the mark says %d, in all %d", held, announced, r.Control().PausedNs)
	}
}

func checkExpiry(t *testing.T, p *peer, r *Process, id uint64) {
	t.Helper()
	if err := r.Arm(3, MonoNs()+int64(200*time.Millisecond), -1, []Cut{{id, 30}}); err != nil {
		t.Fatal(err)
	}
	if n := p.do("calls", 5); n != 5 { // held, and then let go by itself
		t.Fatal(n)
	}
	if s := awaitPause(t, r, PauseExpired); s.Seen != 3 || s.Wanted != 3 {
		t.Fatalf("%+v", s)
	}
	r.Release()
	if err := r.Arm(4, MonoNs()+int64(20*time.Second), -1, []Cut{{id, 40}}); err != nil {
		t.Fatalf("after an expired pause: %v", err)
	}
	r.Release()
	p.do("calls", 50)
}
