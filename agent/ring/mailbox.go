package ring

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTest is wrapped when a test can't be put into the mailbox.
var ErrTest = errors.New("ring: bad test")

// Bounds of a test.
const (
	TestRepeatsMax  = 64
	TestSideMax     = 1 << 15 // of the matrices
	TestBytesMax    = 1 << 32 // of one message
	TestMessagesMax = 1 << 10 // of one repeat
	UniqueIDBytes   = uniqueBytes
)

// TestKind is what a test does.
type TestKind uint32

// Kinds of tests.
const (
	TestGEMM TestKind = testGemm // multiply matrices
	TestMint TestKind = testID   // mint the two unique ids of a link test
	TestLink TestKind = testLink // exchange messages with one peer
)

// TestStatus is the state of a test.
type TestStatus uint32

// Statuses of tests.
const (
	TestIdle    TestStatus = testIdle
	TestRunning TestStatus = testRunning
	TestDone    TestStatus = testDone
	TestRefused TestStatus = testRefused
	TestFailed  TestStatus = testFailed
	TestLate    TestStatus = testLate
)

// Test is one test on one rank.
type Test struct {
	ID      uint64 // larger than all before it
	UntilNs int64  // CLOCK_MONOTONIC
	Kind    TestKind
	Repeats int
	N       int   // GEMM: side of the matrices; link: messages of one repeat, 0 = 1
	Bytes   int64 // link: message size
	Side    int   // link: 0 sends on IDs[0], 1 on IDs[1]
	IDs     [2][]byte
}

// TestResult is what the hook reports of its newest test.
type TestResult struct {
	ID                        uint64
	Kind                      TestKind
	Status                    TestStatus
	Reason                    PauseReason
	Repeats                   int
	MedianNs, BestNs, SetupNs int64
	Bytes                     int64
	IDs                       [2][]byte // minted; nil for other kinds
}

// PutTest gives the process a test. The error wraps ErrTest.
func (p *Process) PutTest(t Test) error {
	if err := cmp.Or(p.err, t.validate()); err != nil {
		return err
	}
	return p.guarded(func() error { return p.writeTest(t) })
}

func (p *Process) writeTest(t Test) error {
	at := p.control + ctlTest
	w := p.mem[at : at+testBytes]
	if newest := w.readUint64(tstID); t.ID <= newest {
		return fmt.Errorf("%w: number %d is not above %d, the newest in the mailbox", ErrTest, t.ID, newest)
	}
	seq := w.readUint64(tstSeq) | 1
	w.writeUint64(tstSeq, seq)
	w.writeUint64(tstUntilNs, uint64(t.UntilNs))
	w.writeUint64(tstBytes, uint64(t.Bytes))
	w.writeUint32(tstKind, uint32(t.Kind))
	w.writeUint32(tstRepeats, uint32(t.Repeats))
	w.writeUint32(tstN, uint32(t.N))
	w.writeUint32(tstSide, uint32(t.Side))
	for i, id := range t.IDs {
		for word := range len(id) / 8 {
			w.writeUint64(tstIDs+uint64(i*uniqueBytes+8*word), binary.LittleEndian.Uint64(id[8*word:]))
		}
	}
	w.writeUint64(tstID, t.ID)
	w.writeUint64(tstSeq, seq+1)
	p.wakeThreads()
	return nil
}

func (t Test) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrTest}, args...)...)
	}
	switch {
	case t.Repeats < 1 || t.Repeats > TestRepeatsMax:
		return bad("%d repeats, from 1 to %d are possible", t.Repeats, TestRepeatsMax)
	case t.Kind == TestGEMM && (t.N < 1 || t.N > TestSideMax):
		return bad("matrices of side %d, from 1 to %d are possible", t.N, TestSideMax)
	case t.Kind == TestLink && (t.Bytes < 1 || t.Bytes > TestBytesMax):
		return bad("messages of %d bytes, from 1 to %d are possible", t.Bytes, int64(TestBytesMax))
	case t.Kind == TestLink && (t.N < 0 || t.N > TestMessagesMax):
		return bad("%d messages a repeat, at most %d are possible", t.N, TestMessagesMax)
	case t.Kind == TestLink && (t.Side < 0 || t.Side > 1):
		return bad("side %d of a link, which has 0 and 1", t.Side)
	case t.Kind == TestLink && (len(t.IDs[0]) != uniqueBytes || len(t.IDs[1]) != uniqueBytes):
		return bad("unique ids of %d and %d bytes, both have %d",
			len(t.IDs[0]), len(t.IDs[1]), uniqueBytes)
	case t.Kind < TestGEMM || t.Kind > TestLink:
		return bad("kind %d is not known", t.Kind)
	case t.Kind != TestLink && len(t.IDs[0])+len(t.IDs[1]) > 0:
		return bad("unique ids belong to link tests only")
	}
	return nil
}

// TestResult copies the newest result; false while there is none, or while the
// hook writes one. Values that no test can have read as a failed one.
func (p *Process) TestResult() (r TestResult, ok bool) {
	var ids [2 * uniqueBytes]byte
	ok = p.readConsistent(ctlResult+resSeq, func(c image) {
		w := c[ctlResult : ctlResult+testResultBytes]
		r = TestResult{
			ID:       w.readUint64(resID),
			Kind:     TestKind(w.readUint32(resKind)),
			Status:   TestStatus(w.readUint32(resStatus)),
			Reason:   PauseReason(w.readUint32(resReason)),
			Repeats:  int(w.readUint32(resRepeats)),
			MedianNs: w.readInt64(resMedianNs),
			BestNs:   w.readInt64(resBestNs),
			SetupNs:  w.readInt64(resSetupNs),
			Bytes:    w.readInt64(resBytes),
		}
		for word := range len(ids) / 8 {
			binary.LittleEndian.PutUint64(ids[8*word:], w.readUint64(resIDs+uint64(8*word)))
		}
	})
	if !ok {
		return TestResult{}, false
	}
	if r.Kind == TestMint && r.Status == TestDone {
		r.IDs = [2][]byte{ids[:uniqueBytes], ids[uniqueBytes:]}
	}
	return r.validated(), r.ID != 0
}

// validated makes a failure of what can't be.
func (r TestResult) validated() TestResult {
	sane := func(ns int64) bool { return ns >= 0 && ns <= int64(PauseMax) }
	ok := r.Kind >= TestGEMM &&
		r.Kind <= TestLink &&
		r.Status <= TestLate &&
		r.Repeats >= 0 &&
		r.Repeats <= TestRepeatsMax &&
		sane(r.MedianNs) &&
		sane(r.BestNs) &&
		sane(r.SetupNs) &&
		r.BestNs <= r.MedianNs &&
		r.Bytes >= 0
	if ok && r.Status == TestDone && r.Kind != TestMint {
		ok = r.Repeats > 0 && r.BestNs > 0
	}
	if !ok {
		return TestResult{
			ID:     r.ID,
			Status: TestFailed,
			Reason: reasonFailed,
		}
	}
	return r
}
