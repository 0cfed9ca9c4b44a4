package falcon

import (
	"cmp"
	"fmt"
	"slices"
)

// ValidationState is the state of a validation.
type ValidationState string

// The states of a validation, in the order in which they can come.
const (
	ValidationSurveying ValidationState = "surveying" // counting calls, seeking a boundary
	ValidationArming    ValidationState = "arming"    // cuts on their way
	ValidationWaiting   ValidationState = "waiting"   // armed; ranks run up to the boundary
	ValidationTesting   ValidationState = "testing"   // quiet; passes run
	ValidationResuming  ValidationState = "resuming"  // letting go
	ValidationDone      ValidationState = "done"
	ValidationRefused   ValidationState = "refused" // never held: see Reason
	ValidationFailed    ValidationState = "failed"  // held, let go, results incomplete: see Reason
)

// Over reports whether nothing of it is in progress any more.
func (s ValidationState) Over() bool {
	return s == ValidationDone || s == ValidationRefused || s == ValidationFailed
}

// LinkClass is what links must share for their times to be compared.
type LinkClass string

// The classes of links (issue wording: intra-node, same rail, cross rail). A
// rail is the set of NICs with the same index on all nodes.
const (
	LinkIntraNode LinkClass = "intra-node"
	LinkSameRail  LinkClass = "same rail"
	LinkCrossRail LinkClass = "cross rail"
)

// TestQuestion is what a test would decide.
type TestQuestion string

// What a test can decide.
const (
	QuestionGPU       TestQuestion = "gpu"         // is the GPU slow, or what feeds it?
	QuestionLink      TestQuestion = "link"        // which link is slow?
	QuestionGPUOrLink TestQuestion = "gpu or link" // is it the GPU, or a link of the slow groups?
	QuestionAny       TestQuestion = "any"         // is any GPU or link slow?
	QuestionHealthy   TestQuestion = "healthy"     // is what was slow healthy again?
)

// TestBar is why a test is not allowed. Nothing was tried then, and nothing speaks for or
// against a verdict.
type TestBar string

// What forbids a test.
const (
	BarNone    TestBar = ""
	BarPolicy  TestBar = "policy"  // a person decides, or has decided
	BarMemory  TestBar = "memory"  // a rank that would be tested has reserved none
	BarWatched TestBar = "watched" // the job runs under the profiler plug-in, which can't hold it
)

// ValidationAsk is what a validation is to test (FALCON §4.4). Groups are
// tested as rings; ranks of a group that is tested are not listed again.
type ValidationAsk struct {
	Incident     string       `json:"incident,omitempty"`
	By           string       `json:"by"` // "engine" or the operator
	Why          string       `json:"why"`
	Question     TestQuestion `json:"question,omitempty"`
	GEMM         []Rank       `json:"gemm,omitempty"`          // suspects and their peers
	Rings        [][]Rank     `json:"rings,omitempty"`         // groups, in ring order
	Trees        [][]Rank     `json:"trees,omitempty"`         // groups, in tree order
	Pairs        [][2]Rank    `json:"pairs,omitempty"`         // single links
	GEMMSide     int          `json:"gemm_n,omitempty"`        // 0 = the engine's default
	MessageBytes int64        `json:"message_bytes,omitempty"` // 0 = the engine's default
}

// Validation is one pause of the job and what was measured in it.
type Validation struct {
	ID          string          `json:"id"` // "VAL-0001"
	Ask         ValidationAsk   `json:"ask"`
	State       ValidationState `json:"state"`
	Reason      string          `json:"reason,omitempty"`
	Bar         TestBar         `json:"bar,omitempty"` // not allowed, rather than tried
	Iteration   int64           `json:"iteration"`     // boundary at which the job was held
	Passes      int             `json:"passes"`
	ExtraPasses int             `json:"extra_passes"` // of which because pairs would share a NIC
	PassesDone  int             `json:"passes_done"`
	PausedMs    float64         `json:"paused_ms"` // longest any rank was held
	QuietMs     float64         `json:"quiet_ms"`  // from the order to all ranks quiet
	Attempts    int             `json:"attempts"`
	GEMM        []GEMMResult    `json:"gemm,omitempty"`
	Links       []LinkResult    `json:"links,omitempty"`
	Emulated    bool            `json:"emulated,omitempty"`
	AtNs        int64           `json:"at_ns"` // Unix ns when it was asked for
}

// GEMMResult is one device's matrix multiplication.
type GEMMResult struct {
	Rank   Rank    `json:"rank"`
	Device Device  `json:"device"`
	Ms     float64 `json:"ms"`                // the least of its runs' medians
	BestMs float64 `json:"best_ms,omitempty"` // the least of all repeats
	Runs   int     `json:"runs,omitempty"`    // of a few repeats each
	// of a number that was multiplied: 16 (tensor cores) where the job sends such, else 32; 0
	// = 32, by an older hook
	Bits int `json:"bits,omitempty"`
	// of all devices tested in the same validation with numbers of as many bits
	MedianMs  float64 `json:"median_ms"`
	Ratio     float64 `json:"ratio"`
	Limit     float64 `json:"limit,omitempty"` // ratio over which it is slow, by the spread of the repeats
	Slow      bool    `json:"slow"`
	Unjudged  string  `json:"unjudged,omitempty"`  // why it is neither slow nor fine; empty = it was judged
	Reference bool    `json:"reference,omitempty"` // tested to compare others with, not asked for
	Err       string  `json:"err,omitempty"`
}

// ElementBits is the width of the numbers that were multiplied. Times of different ones do
// not compare.
func (g GEMMResult) ElementBits() int {
	return cmp.Or(g.Bits, 32)
}

// LinkResult is one direction of one exchange, timed by its receiver.
type LinkResult struct {
	From       Rank      `json:"from"`
	To         Rank      `json:"to"`
	FromDevice Device    `json:"from_device"`
	ToDevice   Device    `json:"to_device"`
	Link       string    `json:"link,omitempty"` // node pair; empty within a node
	Class      LinkClass `json:"class"`
	Pass       int       `json:"pass"`
	Bytes      int64     `json:"bytes"` // of one repeat
	Ms         float64   `json:"ms"`    // the least of its runs' medians
	BestMs     float64   `json:"best_ms,omitempty"`
	Runs       int       `json:"runs,omitempty"`
	BaseMs     float64   `json:"base_ms"` // what Ms is compared with, 0 = nothing
	// "class" (median of its class), "own" (an earlier test of this link), ""
	Basis     string  `json:"basis"`
	BaseFrom  string  `json:"base_from,omitempty"` // the validation of that earlier test
	Ratio     float64 `json:"ratio"`
	Limit     float64 `json:"limit,omitempty"`
	Slow      bool    `json:"slow"`
	Unjudged  string  `json:"unjudged,omitempty"` // as for GEMMResult
	Reference bool    `json:"reference,omitempty"`
	Err       string  `json:"err,omitempty"`
}

// Reasons for which a result is neither slow nor fine; others say in their own words
// what of the noise is in the way.
const (
	NothingToCompare = "nothing to compare with"
	TooShort         = "too short to judge"
)

// Path names what a direction shares with other directions that a single fault
// slows alike: the pair of nodes, or within a node the pair of devices.
func (l LinkResult) Path() string {
	return PathBetween(l.FromDevice, l.ToDevice)
}

// PathBetween is the path between two devices.
func PathBetween(from, to Device) string {
	if x, y := from.Node(), to.Node(); x != y {
		return NewLink(x, y).String()
	}
	return string(min(from, to)) + "-" + string(max(from, to))
}

// MBPerS is the throughput of one direction in 10^6 bytes a second, 0 without a time.
func (l LinkResult) MBPerS() float64 {
	if !(l.Ms > 0) {
		return 0
	}
	return float64(l.Bytes) / l.Ms / 1e3
}

// TestOutcome is what a validation says as a whole.
type TestOutcome string

// The outcomes, the gravest first.
const (
	TestsFailed    TestOutcome = "failed"     // refused, or cut short
	TestsSlow      TestOutcome = "slow"       // something is slow
	TestsNotJudged TestOutcome = "not judged" // something that was asked for could not be judged
	TestsFine      TestOutcome = "fine"       // all that was asked for was judged, and nothing is slow
)

// Outcome sums up the results. References that could not be judged do not
// count; a slow one does.
func (v Validation) Outcome() TestOutcome {
	slow := func(g GEMMResult) bool { return g.Slow }
	slowLink := func(l LinkResult) bool { return l.Slow }
	switch {
	case v.State != ValidationDone:
		return TestsFailed
	case slices.ContainsFunc(v.GEMM, slow) || slices.ContainsFunc(v.Links, slowLink):
		return TestsSlow
	case len(v.GEMM)+len(v.Links) == 0 || len(v.NotJudged()) > 0:
		return TestsNotJudged
	}
	return TestsFine
}

// NotJudged is what a validation could not judge although it was asked for.
type NotJudged struct {
	Name string // a device, or the two of a direction
	Why  string
}

// NotJudged lists what was asked for and not judged, GPUs first.
func (v Validation) NotJudged() []NotJudged {
	var out []NotJudged
	add := func(name, fault, unjudged string, reference bool) {
		if why := cmp.Or(fault, unjudged); why != "" && !reference {
			out = append(out, NotJudged{name, why})
		}
	}
	for _, g := range v.GEMM {
		add(string(g.Device), g.Err, g.Unjudged, g.Reference)
	}
	for _, l := range v.Links {
		add(
			fmt.Sprintf("%s to %s", l.FromDevice, l.ToDevice),
			l.Err,
			l.Unjudged,
			l.Reference,
		)
	}
	return out
}

// Untested is a test that a verdict lacks because it was not allowed, and what it would have decided.
type Untested struct {
	Bar      TestBar      `json:"bar"`
	Question TestQuestion `json:"question,omitempty"`
	GPUs     int          `json:"gpus,omitempty"`  // that would have been tested
	Links    int          `json:"links,omitempty"` // pairs of ranks
}

// Text is that in a sentence.
func (u Untested) Text() string {
	return fmt.Sprintf("No test was allowed (%s); %s would have decided %s",
		cmp.Or(barTexts[u.Bar], string(u.Bar)), u.what(),
		cmp.Or(questionTexts[u.Question], questionTexts[QuestionAny]))
}

func (u Untested) what() string {
	gpus := fmt.Sprintf("%d GPUs", u.GPUs)
	links := fmt.Sprintf("%d pairs of ranks", u.Links)
	switch {
	case u.Links == 0:
		return "one of " + gpus
	case u.GPUs == 0:
		return "one of " + links
	}
	return "one of " + gpus + " and " + links
}

var barTexts = map[TestBar]string{
	BarPolicy:  "the policy does not let one hold the job by itself",
	BarMemory:  "ranks have reserved no memory for it",
	BarWatched: "the job is only watched",
}

var questionTexts = map[TestQuestion]string{
	QuestionGPU:       "whether the GPU itself is slow",
	QuestionLink:      "which link is slow",
	QuestionGPUOrLink: "whether it is the GPU or a link",
	QuestionAny:       "whether any GPU or link is slow",
	QuestionHealthy:   "whether the link is healthy again",
}
