package validate

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// Bounds of one validation.
const (
	AttemptsMost = 3                // of arming, each with twice the margin, where ranks were late
	LifeDefault  = 10 * time.Second // of an order
	LifeMost     = 60 * time.Second
	surveyWait   = 3 * time.Second // for all answers to a survey
	testLife     = 5 * time.Second // of one test, at most what is left of the order
	reserveLife  = 300 * time.Millisecond
	releaseWait  = time.Second // beyond the order's deadline, for the nodes to confirm the release
	marginLeast  = 2           // iterations
	marginMost   = 1024
	apartMost    = 1024    // iterations between the ranks of one job
	aheadMost    = 1 << 22 // calls from a count to its cut: a gate's cut is known modulo 2^23
	idBytes      = 128     // of a unique id
)

// Config is what a validation is done with; zero values mean the defaults.
type Config struct {
	Life              time.Duration // of the order
	CollectiveTimeout time.Duration // of the job's framework, 0 = unknown
	GEMMSide          int           // side of the matrices
	Repeats           int           // timed repeats of each test
	MessageBytes      int64         // of a link test
}

// Defaults of the tests. They fit into 64 MiB that a hook reserves (FALCON_TEST_MB),
// of which an eighth is cuBLAS' own: three square matrices of single precision are
// 48 MiB, two messages 32 MiB.
const (
	GEMMSideDefault     = 2048
	RepeatsDefault      = 5
	MessageBytesDefault = 16 << 20
	RepeatsMost         = 64
)

// OrderLife is how long a hold may last by this configuration.
func (c Config) OrderLife() time.Duration {
	life := c.Life
	if life <= 0 {
		life = LifeDefault
	}
	if c.CollectiveTimeout > 0 {
		life = min(life, c.CollectiveTimeout/4)
	}
	return min(life, LifeMost)
}

// Input is Begin, Answer, Lost or Stop.
type Input interface{ input() }

// Member is one rank of the job; all ranks take part in the pause.
type Member struct {
	Device falcon.Device
	NIC    falcon.NIC // empty = unknown
	Comms  []falcon.Comm
}

// Begin starts a validation; the machine must not be active. The index of
// Members is the rank.
type Begin struct {
	ID       string
	Ask      falcon.ValidationAsk
	Members  []Member
	Emulated bool
	Own      passes.Own // earlier times of links; may be nil
}

// Recover releases, on every node, what a validation holds that an engine before
// this one left behind.
type Recover struct {
	Validation falcon.Validation
	Pause      uint64
	Nodes      []falcon.Node
}

// HeldOn says until when ranks may be held for a validation that has ended, of an engine
// before this one: see Ready.HeldUntil.
type HeldOn struct{ Until time.Time }

// Answer is what a node says to a command.
type Answer struct {
	Node   falcon.Node
	Result *falconv1.CommandResult
}

// Lost reports that a node's agent is gone; its hooks release their ranks by
// themselves.
type Lost struct{ Node falcon.Node }

// Stop ends the validation: a process ended, the job changed, an operator
// cancelled. Why is one sentence without a full stop.
type Stop struct{ Why string }

func (Begin) input()   {}
func (Recover) input() {}
func (HeldOn) input()  {}
func (Answer) input()  {}
func (Lost) input()    {}
func (Stop) input()    {}

// Command is for one node.
type Command struct {
	ID       uint64
	Node     falcon.Node
	Deadline time.Time
	Pause    *falconv1.PauseCommand // one of these two
	Test     *falconv1.TestCommand
}

// Note is a line for the event log.
type Note struct {
	About    string // id of the validation
	Severity int32
	Text     string
}

// Ready is what a Step led to. Persist is durable before Commands are sent.
type Ready struct {
	Persist *falcon.Validation // whole, where it began, is about to hold, or is over
	Pause   uint64             // with Persist: the hold that a restart must let go, 0 = none
	// HeldUntil is, with Persist, until when ranks may be held though the validation is over:
	// nodes were lost before they confirmed the release. Zero = none is.
	HeldUntil time.Time
	Over      bool // with Persist: nothing follows but RESUMEs to nodes that were lost
	Commands  []Command
	Notes     []Note
}

// Empty reports whether there is nothing to do.
func (r Ready) Empty() bool {
	return r.Persist == nil && len(r.Commands) == 0 && len(r.Notes) == 0
}
