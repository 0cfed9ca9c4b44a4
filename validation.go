package falcon

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

// ValidationAsk is what a validation is to test (FALCON §4.4). Groups are
// tested as rings; ranks of a group that is tested are not listed again.
type ValidationAsk struct {
	Incident     string    `json:"incident,omitempty"`
	By           string    `json:"by"` // "engine" or the operator
	Why          string    `json:"why"`
	GEMM         []Rank    `json:"gemm,omitempty"`          // suspects and their peers
	Rings        [][]Rank  `json:"rings,omitempty"`         // groups, in ring order
	Trees        [][]Rank  `json:"trees,omitempty"`         // groups, in tree order
	Pairs        [][2]Rank `json:"pairs,omitempty"`         // single links
	GEMMSide     int       `json:"gemm_n,omitempty"`        // 0 = the engine's default
	MessageBytes int64     `json:"message_bytes,omitempty"` // 0 = the engine's default
}

// Validation is one pause of the job and what was measured in it.
type Validation struct {
	ID          string          `json:"id"` // "VAL-0001"
	Ask         ValidationAsk   `json:"ask"`
	State       ValidationState `json:"state"`
	Reason      string          `json:"reason,omitempty"`
	Iteration   int64           `json:"iteration"` // boundary at which the job was held
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
	Rank     Rank    `json:"rank"`
	Device   Device  `json:"device"`
	Ms       float64 `json:"ms"`
	MedianMs float64 `json:"median_ms"` // of all devices tested in the same validation
	Ratio    float64 `json:"ratio"`
	Slow     bool    `json:"slow"`
	Err      string  `json:"err,omitempty"`
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
	Bytes      int64     `json:"bytes"`
	Ms         float64   `json:"ms"`
	BaseMs     float64   `json:"base_ms"` // what Ms is compared with, 0 = nothing
	Basis      string    `json:"basis"`   // "class" (median of its class), "own" (an earlier test of this link), ""
	Ratio      float64   `json:"ratio"`
	Slow       bool      `json:"slow"`
	Err        string    `json:"err,omitempty"`
}
