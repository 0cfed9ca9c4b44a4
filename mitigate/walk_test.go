package mitigate

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// walk plays words of an engine in any order, sensible or not.
type walk struct {
	*rapid.T
	sc    *script
	at    int64
	epoch int
	known []uint64 // orders
	seen  uint64
}

func (w *walk) say(format string, args ...any) {
	for _, line := range w.sc.play(fmt.Sprintf(format, args...)) {
		var id uint64
		if n, _ := fmt.Sscanf(line, "order %d", &id); n == 1 {
			if id <= w.seen {
				w.Fatalf("order %d after %d", id, w.seen)
			}
			w.seen = id
			w.known = append(w.known, id)
		}
	}
}

func (w *walk) job() {
	w.epoch++
	w.say("job epoch=%d tp=1 dp=2 pp=2 m=8,8 per=1 spares=n8,n9 launch=%v",
		w.epoch, rapid.Bool().Draw(w.T, "launch"))
}

func (w *walk) policy() {
	words := []string{
		"mode=observe", "mode=approve", "mode=auto cap=S3", "mode=auto cap=S4",
		"mode=auto cap=S4 owner=x", "mode=auto cap=S4 owner=x frozen=true",
		"mode=auto cap=S4 owner=x countdown.S2=5 drop=true",
	}
	p := rapid.SampledFrom(words).Draw(w.T, "policy")
	if p == "mode=auto cap=S4" {
		p += " S4=person"
	}
	w.say("policy %s", p)
}

func (w *walk) incident() {
	id := rapid.IntRange(1, 3).Draw(w.T, "incident")
	what := []string{
		"cause=network_congestion links=n0-n1",
		"cause=gpu_degradation devices=n1.g0",
		"cause=gpu_degradation devices=n2.g0",
	}[id-1]
	state := rapid.SampledFrom([]string{
		"located relieved=-1",
		"located relieved=-1",
		"verified relieved=-1",
		fmt.Sprintf("relieved relieved=%d", w.at),
	}).Draw(w.T, "state")
	w.say("incident id=INC-000%d onset=%d healthy=110 slow=200 %s state=%s", id, max(0, w.at-5), what, state)
	w.say("profile id=INC-000%d self=10 dp=100 pp=1 mbs=10000 links=n0-n1:%d slow=n1.g0:%d",
		id, rapid.IntRange(1, 8).Draw(w.T, "ratio"), rapid.IntRange(1, 3).Draw(w.T, "slow"))
}

func (w *walk) answer() {
	if len(w.known) == 0 {
		return
	}
	order := w.known[len(w.known)-1]
	switch rapid.IntRange(0, 7).Draw(w.T, "answer") {
	case 0:
		w.say("undeliverable order=%d reason=x", order)
	case 1:
		w.say("commit order=%d at=%d status=3", order, w.at)
	case 2:
		w.say("left order=%d", order)
	case 3:
		w.say("left order=%d reason=x", order)
	case 4:
		w.say("launched generation=%d", w.sc.p.exec.generation)
	case 5:
		w.say("launched generation=%d failed=x", w.sc.p.exec.generation)
	default:
		w.say("commit order=%d at=%d status=0 resume=%d", order, w.at, w.at)
	}
}

func (w *walk) check() {
	p := w.sc.p
	busy := 0
	for _, s := range p.incidents.list {
		ids := map[string]bool{}
		for _, a := range s.actions {
			if isUnderWay(a.State) {
				busy++
			}
			if ids[a.ID] {
				w.Fatalf("%s twice", a.ID)
			}
			ids[a.ID] = true
		}
		p.Ladder(s.incident.ID)
	}
	if busy > 1 {
		w.Fatalf("%d actions under way", busy)
	}
	got := slices.Sorted(slices.Values(p.job.desc.Placement))
	if totalOf(p.job.desc.MicroBatches) != 16 ||
		!slices.Equal(got, falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n3.g0"}) {
		w.Fatalf("the job is %+v", p.job.desc)
	}
}

// Whatever comes in whatever order, one action is under way at most, no order
// is given twice, the batch stays, and every rank keeps a device of its own; a
// restart of the engine in between changes nothing in that.
func TestAnyWordsLeaveTheJobWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{T: rt, sc: newScript(t)}
		w.job()
		for range rapid.IntRange(1, 60).Draw(rt, "words") {
			switch rapid.IntRange(0, 9).Draw(rt, "word") {
			case 0:
				w.policy()
			case 1, 2:
				w.incident()
			case 3, 4, 5:
				w.answer()
			case 6:
				w.say("tick s=%d", rapid.IntRange(0, 4000).Draw(rt, "s"))
			case 7:
				w.say("restart")
			case 8:
				if rapid.IntRange(0, 4).Draw(rt, "again") == 0 {
					w.job()
				}
			default:
				to := w.at + rapid.Int64Range(0, 30).Draw(rt, "iterations")
				w.say("iterations from=%d to=%d ms=%d",
					w.at, to, rapid.IntRange(100, 260).Draw(rt, "ms"))
				w.at = to + 1
			}
			w.check()
		}
	})
}
