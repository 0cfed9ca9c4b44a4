package period

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// Bounds and thresholds of the inference.
const (
	DefaultAgreement = 0.95 // M of FALCON §4.2
	minCalls         = 6
	repeatsNeeded    = 2.5 // a period must fit this often into the sequence
	rareClasses      = 8   // classes whose gaps propose lags
	maxCandidates    = 4096
	eligibleCount    = 2 // a class must come this often to speak
	sizesVary        = 2 // size classes to a kind of call, on average, from which on sizes mean nothing
)

// ErrNone is wrapped where a sequence has no period; the error text gives the reason.
var ErrNone = errors.New("period: none found")

// Config sets up Infer and Tracker; zero fields mean their defaults.
type Config struct {
	Agreement float64 // least agreement at the period
	Window    int     // calls that a Tracker remembers
	// Op is what a call's Op means. Nil where that is not known: then no reduction of
	// gradients is either.
	Op func(op uint32) falcon.Op
}

// LiveOp is Config.Op of sequences whose Call.Op is a falcon.Op.
func LiveOp(op uint32) falcon.Op {
	return falcon.Op(op)
} //#nosec G115 -- it came as an Op

func (c Config) withDefaults() Config {
	c.Agreement = cmp.Or(c.Agreement, DefaultAgreement)
	c.Window = max(cmp.Or(c.Window, defaultWindow), 4*firstLook)
	return c
}

// Result is an inferred period.
type Result struct {
	Period    int     // calls per iteration
	Agreement float64 // at that lag, 0..1
	ByTime    bool    // from the times between calls: all calls were of one class
	Anchor    Anchor
	Starts    []int // indexes of the anchor calls

	coarse  int     // how many parts of the class were left out, see coarsenings
	steps   bool    // the period is an optimizer step by what isStep judges
	context []Class // of the anchor: the calls before it, newest first
}

// IterationsMs are the times from each anchor call to the next.
func (r Result) IterationsMs(calls []Call) []float64 {
	var out []float64
	for i := 1; i < len(r.Starts); i++ {
		out = append(out, float64(calls[r.Starts[i]].TimeNs-calls[r.Starts[i-1]].TimeNs)/1e6)
	}
	return out
}

// Infer finds the period of a whole sequence. It looks at classes with sizes, then without; each
// first over the whole sequence and then over its later parts, because jobs begin with calls that
// never come again. Extra steps between iterations do not hide them. Calls of one single kind are
// distinguished by the times between them; where these are even, each call counts as an iteration.
// The error wraps ErrNone.
func Infer(calls []Call) (Result, error) { return Config{}.Infer(calls) }

// Infer is Infer with thresholds of one's own.
func (c Config) Infer(calls []Call) (Result, error) {
	c = c.withDefaults()
	if len(calls) < minCalls {
		return Result{}, fmt.Errorf("%w: %d calls are too few, at least %d are needed",
			ErrNone, len(calls), minCalls)
	}
	single := true
	for _, skip := range []int{0, len(calls) / 4, len(calls) / 2} {
		part := calls[skip:]
		kinds := 0
		for level, coarse := range coarsenings {
			seq := newSequence(part, coarse)
			if level == 0 {
				kinds = len(seq.classes)
			} else if kinds < sizesVary*len(seq.classes) {
				continue
			}
			if len(seq.eligible()) < 2 || skip > 0 && seq.cutShort(calls[:skip], coarse) {
				continue
			}
			single = false
			if r, ok := c.bySequence(seq, part); ok {
				r.coarse = level
				return shiftAnchor(r, skip), nil
			}
		}
	}
	if single {
		if r, ok := c.byTime(calls); ok {
			return r, nil
		}
	}
	if r, ok := c.byEvenCalls(calls[len(calls)/2:]); ok {
		return shiftAnchor(r, len(calls)/2), nil
	}
	if single {
		return Result{}, fmt.Errorf(
			"%w: all %d calls are of one kind and the times between them do not repeat",
			ErrNone, len(calls),
		)
	}
	return Result{}, fmt.Errorf("%w: no lag up to %d of %d calls reaches an agreement of %.2f; "+
		"at least three iterations are needed", ErrNone, longestLag(len(calls)), len(calls), c.Agreement)
}

// bySequence takes the period of blocks where it is shorter than the sequence's.
func (c Config) bySequence(seq sequence, calls []Call) (Result, bool) {
	whole, ok := c.byClass(seq, calls)
	most := longestLag(len(calls)) + 1
	if ok {
		most = whole.Period
	}
	if r, interrupted := c.byBlocks(seq, seq.eligible(), most, calls); interrupted {
		return r, true
	}
	return whole, ok
}

func shiftAnchor(r Result, by int) Result {
	for i := range r.Starts {
		r.Starts[i] += by
	}
	return r
}

// longestLag is the largest lag that n calls can vouch for.
func longestLag(n int) int { return int(float64(n) / repeatsNeeded) }

// coarsenings turn a call's class into less: all of it, without the size.
// The communicator always counts: without it the reductions that end an
// iteration would pass for those of a micro-batch.
var coarsenings = []func(Class) Class{
	func(c Class) Class { return c },
	func(c Class) Class { return Class{Op: c.Op, Comm: c.Comm} },
}

// cutShort reports whether a part is too short to judge: a class came before it,
// among those that the part repeats, but comes in it once at most. Without
// this the part would hide the rarest class, and pass a micro-batch for the
// iteration.
func (s sequence) cutShort(before []Call, coarse func(Class) Class) bool {
	often := make(map[Class]bool)
	for id, at := range s.at {
		often[s.classes[id]] = len(at) >= eligibleCount
	}
	running := false
	for _, c := range before {
		repeated, known := often[coarse(c.classOf())]
		if !repeated && (known || running) {
			return true
		}
		running = running || repeated
	}
	return false
}

// sequence is the calls as class numbers.
type sequence struct {
	ids     []int32
	classes []Class
	at      [][]int32 // positions of each class, ascending
}

func newSequence(calls []Call, coarse func(Class) Class) sequence {
	s := sequence{ids: make([]int32, len(calls))}
	number := make(map[Class]int32)
	for i, c := range calls {
		class := coarse(c.classOf())
		id, known := number[class]
		if !known {
			id = int32(len(s.classes))
			number[class] = id
			s.classes = append(s.classes, class)
			s.at = append(s.at, nil)
		}
		s.ids[i] = id
		s.at[id] = append(s.at[id], int32(i))
	}
	return s
}
