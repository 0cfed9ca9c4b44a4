package detect

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// offRing makes a link of stage 0's ring slow, waits for its incident, and swaps
// two nodes so that the link leaves every ring: to a pipeline's pair, or to
// nothing.
func offRing(t *testing.T, seed uint64, pipeline bool, prepare func(*world)) (*world, falcon.Link) {
	t.Helper()
	w := rings(seed)
	prepare(w)
	l := ringLink(w, rand.New(rand.NewPCG(seed, 41)), 0)
	w.job.Link[l] = 0.05
	w.run(30)
	if w.tests == "on" {
		wantOpen(t, w, network(l))
	}
	a := w.block(l.A)
	b := w.block(l.B)
	to := a + 4 // the other stage of the same replica
	if !pipeline {
		to = 4 + (a+2)%4
		if to == b+4 {
			to = 4 + (a+3)%4
		}
	}
	w.place("INC-0001", false, swap(8, b, to))
	return w, l
}

// While the fault lasts a link that left its ring is never called healthy,
// whatever it carries, and tests of it get rare; once it has cleared it is
// relieved after three quiet looks and a test, or by its own messages.
func TestALinkOffItsRingIsRelievedWhenItIsHealthy(t *testing.T) {
	for seed := range uint64(6) {
		pipeline := seed%2 == 0
		w, l := offRing(t, seed, pipeline, func(w *world) {
			w.nics = seed%3 == 0
		})
		before := w.tested
		w.run(400)
		wantOpen(t, w, network(l))
		if n := w.tested - before; n > 5 {
			t.Errorf("seed %d: %d tests in 400 iterations\n%s", seed, n, w.out.String())
		}
		if w.nics && w.tested > before {
			t.Errorf("seed %d: tested while the ports were busy", seed)
		}
		cleared := w.job.Next()
		w.clearFaults()
		most := cleared + testMost + 100
		if w.nics || pipeline { // nothing was tested in vain, so the next test is near
			most = cleared + 90
		}
		for w.job.Next() < most && len(w.m.Open()) > 0 {
			w.run(1)
		}
		inc := w.all[0]
		if len(w.all) != 1 ||
			inc.State != falcon.IncidentRelieved ||
			inc.RelievedIteration < cleared-1 {
			t.Errorf("seed %d, pipeline %v: %d incidents, %s at %d, cleared at %d\n%s",
				seed, pipeline, len(w.all), inc.State, inc.RelievedIteration, cleared,
				w.out.String())
		}
	}
}

// Where no test can be had, ports at rest relieve a link after nine looks, and
// the log says that no test confirms it; without ports it stays.
func TestALinkThatCannotBeTested(t *testing.T) {
	for seed := range uint64(6) {
		nics := seed%2 == 0
		w, l := offRing(t, seed, false, func(w *world) { w.nics = nics })
		w.tests = "refused"
		w.run(200)
		wantOpen(t, w, network(l))
		w.clearFaults()
		w.run(60)
		wantOpen(t, w, network(l)) // not by fewer looks
		w.run(140)
		if open := len(w.m.Open()) > 0; open == nics {
			t.Errorf("seed %d, ports %v: open %v\n%s", seed, nics, open, w.out.String())
		}
		if nics &&
			!strings.Contains(w.out.String(),
				"no test confirms it (no consistent boundary: rank 3 is not hooked)") {
			t.Errorf("seed %d: the log does not say that no test confirms it\n%s", seed, w.out.String())
		}
	}
}

// An operator's test of the link counts as much as one that was asked for.
func TestAnOperatorTestsALinkOffItsRing(t *testing.T) {
	w, l := offRing(t, 3, false, func(*world) {})
	w.tests = "off"
	w.run(20)
	test := func() {
		v := w.job.Validate(w.m.linkWatch.testFor(w.m.incidents.list[0]))
		v.Ask.Incident = ""
		v.Ask.By = "alice"
		v.ID = "VAL-0100"
		w.step(Validated{Validation: v})
	}
	test()
	wantOpen(t, w, network(l))
	w.clearFaults()
	w.run(1)
	test()
	wantOpen(t, w)
}

// A link whose ring it is back on after S3 is undone is judged as ever.
func TestALinkThatIsBackOnItsRing(t *testing.T) {
	for seed := range uint64(6) {
		w, l := offRing(t, seed, seed%2 == 0, func(*world) {})
		w.run(30)
		b := w.block(l.B)
		back := slices.Index(w.job.Placement, w.m.job.desc.Placement[b]) // its block now
		home := slices.IndexFunc(w.job.Placement, func(d falcon.Device) bool {
			return d.Node() == falcon.Node("n"+string(rune('0'+back)))
		})
		w.place("INC-0001", true, swap(8, back, home))
		w.run(60)
		wantOpen(t, w, network(l))
		cleared := w.job.Next()
		w.clearFaults()
		w.run(30)
		if len(w.all) != 1 ||
			w.all[0].State != falcon.IncidentClosed ||
			w.all[0].RelievedIteration < cleared-1 ||
			w.all[0].RelievedIteration > cleared+6 {
			t.Errorf("seed %d: %+v, cleared at %d\n%s", seed, w.all, cleared, w.out.String())
		}
	}
}

// grid is DP 4 × PP 4 on sixteen nodes, as in FALCON figure 16.
func grid(seed uint64) *world {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 4}, 16, 8, seed)
	w.job.Noise, w.job.DPMs = 0.02, 10
	w.run(35)
	return w
}

// One, two and three slow links are all named, also where most stages have one;
// with two of them consolidated into one stage's ring they are still one incident,
// and a further one elsewhere is reported, also where then all rings are slow.
func TestSlowLinksOfSeveralStages(t *testing.T) {
	for seed := range uint64(6) {
		w := grid(seed)
		var links []falcon.Link
		at := int(seed) % 4
		for stage := range 1 + int(seed)%3 {
			l := ringOn(w, 1+stage)[at]
			links = append(links, l)
			w.job.Link[l] = 0.08
		}
		w.run(40)
		wantOpen(t, w, network(links...))
		blocks := swap(16, 4+(at+2)%4, 8+at) // the second link's nodes beside the first's
		for b, to := range swap(16, 4+(at+3)%4, 8+(at+1)%4) {
			if int(to) != b {
				blocks[b] = to
			}
		}
		w.place("INC-0001", false, blocks)
		w.run(40)
		wantOpen(t, w, network(links...))
		last := ringOn(w, 0)[1]
		w.job.Link[last] = 0.04
		w.run(60)
		wantOpen(t, w, network(links...), network(last))
	}
}

// FALCON figure 17: a link gets slow, S3; a GPU gets slow, S2; both get a new
// start without them, S4.
func TestCompoundUpTheLadder(t *testing.T) {
	for seed := range uint64(8) {
		w, l := offRing(t, seed, seed%2 == 0, func(*world) {})
		w.run(30)
		d := w.job.Placement[int(seed)]
		for d.Node() == l.A || d.Node() == l.B {
			d = w.job.Placement[(int(seed)+3)%8]
		}
		w.job.Clock[d] = 0.5
		w.run(30)
		wantOpen(t, w, network(l), gpu(d))
		micro := []int{9, 9, 9, 9}
		micro[w.job.Layout.Replica(rankOf(w, d))] = 5
		w.act("INC-0002", false, micro)
		w.run(60)
		wantOpen(t, w, network(l), gpu(d))

		at := w.job.Next() - 7
		w.exchange(d.Node(), "s1")
		w.exchange(l.A, "s2")
		w.relaunch(7)
		w.act("INC-0002", true, []int{8, 8, 8, 8}) // the planner's word on a split that is gone
		w.run(60)
		wantOpen(t, w)
		for _, inc := range w.all {
			if inc.State != falcon.IncidentClosed || inc.RelievedIteration != at {
				t.Errorf("seed %d: %+v\n%s", seed, inc, w.out.String())
			}
		}
		if out := w.out.String(); len(w.all) != 2 || strings.Count(out, "left the job") != 2 {
			t.Errorf("seed %d: %d incidents\n%s", seed, len(w.all), out)
		}
		if st := w.m.Steady(); st.Learning || st.Iteration < at+50 {
			t.Errorf("seed %d: %+v", seed, st)
		}
	}
}
