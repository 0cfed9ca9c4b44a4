package enginetest

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Hang has the job stand still: rank 2 stays away, or, where that is not sure, the
// agent of its node has not answered.
func (e *Engine) Hang(sure bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.still = standstill{true, sure}
	e.turns++
}

// standstill is whether the job stands still, and whether it is sure who holds it up.
type standstill struct{ hangs, sure bool }

// verdict is who holds the job up, nil where it does not stand still.
func (s standstill) verdict(now time.Time, hostile string) *falconv1.Hang {
	if !s.hangs {
		return nil
	}
	h := &falconv1.Hang{
		SinceUnixNs:  now.Add(-7 * time.Second).UnixNano(),
		JudgedUnixNs: now.Add(-time.Second).UnixNano(),
		Waiting:      7,
		World:        8,
	}
	p := &falconv1.HangPart{
		Kind:    "missed_call",
		Ranks:   []int32{2},
		Devices: []string{"n1.g0" + hostile},
		Comm:    "dp" + hostile,
		Members: []int32{0, 1, 2, 3},
		Seq:     31,
		Call:    "allreduce",
		Waiting: []int32{0, 1, 3},
		Text:    "Rank 2 (n1.g0, process 4711) has not called collective 31, allreduce of 37152 float32, of communicator dp (ranks 0-3), in which ranks 0-1, 3 wait; last call there: 30; it is in the program's own code and waits in no call" + hostile,
		Advice:  "On n1: py-spy dump --pid 4711, or gdb -p 4711: look for a data loader, a lock or a file system; if it does not go on, falcon recover --rank 2" + hostile,
	}
	if s.sure {
		h.Culprits = []*falconv1.HangPart{p}
		return h
	}
	p.Kind = "no_record"
	p.Text = "Rank 2 (n1.g0, process 4711): ranks 0-1, 3 wait in collective 31, allreduce of 37152 float32, of communicator dp (ranks 0-3); its calls are not known" + hostile
	p.Advice = "Check whether n1 and its agent are running"
	h.Candidates = []*falconv1.HangPart{p}
	h.Doubts = []string{
		"The records are ambiguous, so no rank is named",
		"The agents of n1 did not answer: the calls of their ranks are not known",
	}
	return h
}
