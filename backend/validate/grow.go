package validate

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// Bounds of growing a test that is too short to judge: more messages make one
// repeat, since more bytes may not fit into the memory that a hook has reserved.
const (
	growMost     = 2    // times
	growStep     = 4    // messages grow by powers of it, so that later tests are of the same size
	growSpare    = 1.5  // of the least time: the first message of a repeat costs more than the others
	MessagesMost = 1024 // of one repeat
	growTestMs   = 1500 // that one test may take by then
)

// queueGrowth runs the passes of classes whose times are too short to judge
// again with more messages a repeat. It reports whether there are any.
func (t *testRun) queueGrowth() bool {
	if t.growths >= growMost {
		return false
	}
	t.growths++
	for _, class := range t.classes() {
		if n := t.messagesFor(class); n > t.messagesOf(class) {
			t.messages[class] = n
			t.queuePasses(t.passesWith(class), queued{grown: true, only: class})
		}
	}
	return len(t.steps) > 0
}

func (t *testRun) messagesOf(class falcon.LinkClass) int32 {
	return max(1, t.messages[class])
}

// classes are those that were measured, in the order of their results.
func (t *testRun) classes() []falcon.LinkClass {
	var out []falcon.LinkClass
	for _, l := range t.links {
		if l.Err == "" && !slices.Contains(out, l.Class) {
			out = append(out, l.Class)
		}
	}
	return out
}

// messagesFor is how many messages bring a class's usual time over the floor, as far
// as its slowest member leaves time for them.
func (t *testRun) messagesFor(class falcon.LinkClass) int32 {
	var ms []float64
	slowest := 0.0
	for _, l := range t.links {
		if l.Class == class && l.Err == "" {
			ms = append(ms, l.Ms)
			slowest = max(slowest, l.BestMs)
		}
	}
	slices.Sort(ms)
	n, usual := t.messagesOf(class), ms[(len(ms)-1)/2]
	if usual >= passes.FloorMs {
		return n
	}
	for per := float64(n); usual*float64(n)/per < growSpare*passes.FloorMs; n *= growStep {
		next := n * growStep
		if next > MessagesMost || slowest*float64(next)/per*float64(t.repeats+1) > growTestMs {
			break
		}
	}
	return n
}

func (t *testRun) passesWith(class falcon.LinkClass) []int {
	var out []int
	for i, pass := range t.schedule {
		if slices.ContainsFunc(pass.Pairs, func(p passes.Pair) bool {
			return t.roster.classOf(p) == class
		}) {
			out = append(out, i)
		}
	}
	return out
}
