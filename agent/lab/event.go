package lab

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

// everyLink means all links between nodes.
const everyLink = "all"

// Event is one fault, or one death. at_iteration is the first affected
// iteration, until_iteration the first unaffected one (0: to the end). Exactly
// one of GPU, Link, CPU, All, Stage, Kill, Freeze, Stall, Data and Lengths names what is hit.
type Event struct {
	AtIteration    int64   `yaml:"at_iteration"`
	UntilIteration int64   `yaml:"until_iteration"`
	GPU            string  `yaml:"gpu"`       // with Clock
	Clock          float64 `yaml:"clock"`     // share of nominal, 0 < clock < 1
	Link           string  `yaml:"link"`      // a pair of nodes, or all of them; with Bandwidth
	Bandwidth      float64 `yaml:"bandwidth"` // share of healthy, 0 < bandwidth < 1
	CPU            string  `yaml:"cpu"`       // node, with Share
	Share          float64 `yaml:"share"`     // of the CPU that its ranks ask for, 0 < share < 1
	All            float64 `yaml:"all"`       // the job's own work times this, on all ranks
	Stage          *int    `yaml:"stage"`     // with Load
	Load           float64 `yaml:"load"`      // the work of one pipeline stage times this

	// OnAction makes the fault hold while an action of the rung does: from the
	// first iteration of the next S2 or S3 that begins at or after AtIteration to
	// the one that undoes or replaces it. A mitigation that makes things worse.
	OnAction string `yaml:"on_action"`

	// Kill ends "console", "agent NODE", "rank RANK" or "node NODE", without a
	// word and once: at AtIteration, or when a placement reaches OnStep. Freeze
	// stops a rank or a node instead (SIGSTOP; nothing is reset), until
	// UntilIteration. "5" and "n2" mean rank 5 and node n2.
	Kill   string `yaml:"kill"`
	Freeze string `yaml:"freeze"`
	OnStep string `yaml:"on_step"`

	// Stall has a rank sleep in its own code for ForMs at the begin of AtIteration,
	// while its peers go on to their next call: a hang.
	Stall string  `yaml:"stall"`
	ForMs float64 `yaml:"for_ms"`

	// Data has a rank's data come ForMs late in each of these iterations. Lengths has the
	// emulated work of micro-batches differ, by up to that many times more. Both are the job's own.
	Data    string  `yaml:"data"`
	Lengths float64 `yaml:"lengths"`

	// Point has a rank, or a node with its first rank, stopped in the middle of
	// what the rank does at AtIteration (Points), of the points in a recovery only
	// in that of Generation, unless 0. Without a point the death comes AfterMs
	// behind the iteration's beginning.
	Point      string  `yaml:"point"`
	Generation uint64  `yaml:"generation"`
	AfterMs    float64 `yaml:"after_ms"`
}

// checkFault checks what an event hits, for scenarios and injections alike.
func (s Scenario) checkFault(e Event) error {
	kinds := 0
	for _, set := range []bool{
		e.GPU != "",
		e.Link != "",
		e.CPU != "",
		e.All != 0,
		e.Stage != nil,
		e.Kill != "",
		e.Freeze != "",
		e.Stall != "",
		e.Data != "",
		e.Lengths != 0,
	} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New(
			"name exactly one of gpu, link, cpu, all, stage, kill, freeze, stall, data and lengths",
		)
	}
	if err := errors.Join(e.checkTrigger(), e.checkPoint(), s.checkStall(e), s.checkOwnWork(e)); err != nil {
		return err
	}
	switch {
	case e.GPU != "":
		return s.validateGPU(e)
	case e.Link != "":
		return s.checkLink(e)
	case e.CPU != "":
		return errors.Join(s.checkNode(e.CPU), shareOf("share", e.Share))
	case e.Stage != nil:
		if *e.Stage < 0 || *e.Stage >= s.Layout.PP {
			return fmt.Errorf("there is no stage %d, stages are 0 to %d", *e.Stage, s.Layout.PP-1)
		}
		return workShares("load", e.Load)
	case e.Kill != "" || e.Freeze != "":
		return s.checkDeath(e)
	case e.Stall != "" || e.Data != "" || e.Lengths != 0:
		return nil
	}
	return workShares("all", e.All)
}

func (e Event) checkTrigger() error {
	switch {
	case e.OnAction != "" && rungOrder(falcon.Rung(e.OnAction)) == "":
		return fmt.Errorf("on_action is %q, it must be S2 or S3", e.OnAction)
	case e.OnAction != "" && e.endsProcesses():
		return errors.New("on_action goes with a fault; a death waits for on_step")
	case e.OnStep != "" && e.Kill == "":
		return errors.New("on_step goes with kill; a fault waits for on_action")
	case e.OnStep != "" && !slices.Contains(falcon.SwapSteps[:], e.OnStep):
		return fmt.Errorf("on_step is %q, it must be one of %s",
			e.OnStep, strings.Join(falcon.SwapSteps[:], ", "))
	}
	return nil
}

// rungOrder is the order that carries a rung out and holds from an iteration
// on; "" for other rungs.
func rungOrder(r falcon.Rung) falcon.OrderKind {
	switch r {
	case falcon.RungS2:
		return falcon.OrderMicroBatches
	case falcon.RungS3:
		return falcon.OrderPlacement
	}
	return ""
}

func workShares(name string, v float64) error {
	if !(v >= 0.1 && v <= 10) {
		return fmt.Errorf("%s is %v, the job's work can change 0.1 to 10 times", name, v)
	}
	return nil
}

func (s Scenario) validateGPU(e Event) error {
	d, err := falcon.ParseDevice(e.GPU)
	if err != nil {
		return err
	}
	if _, ok := s.nodeIndex(d.Node()); !ok || d.Index() >= s.gpusPerNode() {
		return fmt.Errorf("there is no GPU %s, the last one is %s",
			d, falcon.NewDevice(nodeNameOf(s.nodeCount()-1), s.gpusPerNode()-1))
	}
	return shareOf("clock", e.Clock)
}

func (s Scenario) checkLink(e Event) error {
	if e.Link == everyLink {
		return shareOf("bandwidth", e.Bandwidth)
	}
	l, err := falcon.ParseLink(e.Link)
	if err != nil {
		return err
	}
	if err := errors.Join(s.checkNode(string(l.A)), s.checkNode(string(l.B))); err != nil {
		return err
	}
	return shareOf("bandwidth", e.Bandwidth)
}

func (s Scenario) checkNode(name string) error {
	if _, ok := s.nodeIndex(falcon.Node(name)); !ok {
		return fmt.Errorf("there is no node %q, nodes are n0 to n%d", name, s.nodeCount()-1)
	}
	return nil
}

func shareOf(name string, v float64) error {
	if !(v > 0 && v < 1) {
		return fmt.Errorf("%s is %v, it must lie between 0 and 1, such as 0.5", name, v)
	}
	return nil
}

// String is the event in a few words.
func (e Event) String() string {
	switch {
	case e.GPU != "":
		return fmt.Sprintf("gpu %s clock %g", e.GPU, e.Clock)
	case e.Link != "":
		return fmt.Sprintf("link %s bandwidth %g", e.Link, e.Bandwidth)
	case e.CPU != "":
		return fmt.Sprintf("cpu %s share %g", e.CPU, e.Share)
	case e.Stage != nil:
		return fmt.Sprintf("stage %d load %g", *e.Stage, e.Load)
	case e.Kill != "":
		return "kill " + e.Kill
	case e.Freeze != "":
		return "freeze " + e.Freeze
	case e.Stall != "":
		return "stall " + e.Stall
	case e.Data != "":
		return fmt.Sprintf("data of rank %s %g ms late", e.Data, e.ForMs)
	case e.Lengths != 0:
		return fmt.Sprintf("sequence lengths differ by %g", e.Lengths)
	}
	return fmt.Sprintf("work of all ranks times %g", e.All)
}

// targetName names what an event hits.
func (e Event) targetName() string {
	if e.Stage != nil {
		return "stage " + strconv.Itoa(*e.Stage)
	}
	return e.GPU + e.Link + e.CPU + e.Kill + e.Freeze + e.Stall + e.Data
}
