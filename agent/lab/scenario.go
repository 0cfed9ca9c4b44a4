package lab

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
)

//go:embed scenarios/*.yaml
var shipped embed.FS

// ErrScenario is wrapped by every error about a scenario's content.
var ErrScenario = errors.New("lab: bad scenario")

// Bounds of a scenario; beyond them two cores can't emulate the job in time.
const (
	maxRanks      = 64
	maxIterations = 100_000
	maxEvents     = 64
	maxFileBytes  = 1 << 20
)

// Scenario is a job and its faults, to play on the lab.
type Scenario struct {
	Name         string  `yaml:"name"`
	About        string  `yaml:"about"`
	Layout       Shape   `yaml:"layout"`
	Nodes        int     `yaml:"nodes"`
	Iterations   int     `yaml:"iterations"`
	MicroBatches int     `yaml:"micro_batches"` // per replica
	ForwardMs    float64 `yaml:"forward_ms"`    // per micro-batch and stage at clock 1.0
	WarmUp       int     `yaml:"warm_up"`       // iterations left out of healthy_ms
	// healthy bandwidth between nodes, MB/s: the model is small, so links must be narrow to matter
	LinkMBs float64 `yaml:"link_mb_s"`
	NICs    int     `yaml:"nics"`   // per node; GPU i uses NIC i mod nics
	Spares  int     `yaml:"spares"` // nodes whose agent runs and whose ranks don't
	// emulated state of a GPU beyond the model's own, in 10^6 bytes: what a swap moves
	// and a checkpoint writes
	StateMB float64 `yaml:"state_mb"`
	CopyGBs float64 `yaml:"copy_gb_s"` // between a GPU and its host's memory, 10^9 bytes/s
	// between a GPU's host and the storage of checkpoints, 10^6 bytes/s
	DiskMBs float64 `yaml:"disk_mb_s"`
	// the CPU's counters are the kernel's, of the cgroups that the ranks are put into
	RealCPU bool `yaml:"real_cpu,omitempty"`
	// iterations from one checkpoint to the next, 0 = only those that are ordered
	Checkpoints int     `yaml:"checkpoint_every"`
	Events      []Event `yaml:"events"`

	// Park has ranks leave training for a recovery instead of ending with a peer
	// that died; absent: yes.
	Park *bool `yaml:"park,omitempty"`

	// Strangers has another user of each machine take every name that its agent uses in
	// shared memory.
	Strangers bool `yaml:"strangers,omitempty"`

	// Policy is the engine's, with the keys of falcon.yaml; it holds unless the
	// caller asks for another. Overheads are the rungs' costs in ms before any
	// was measured.
	Policy    map[string]any          `yaml:"policy,omitempty"`
	Overheads map[falcon.Rung]float64 `yaml:"overheads_ms,omitempty"`
	// the engine's, with the keys of falcon.yaml
	Recovery map[string]any `yaml:"recovery,omitempty"`
}

// Shape is the layout as scenarios write it. With Zero 1 each of Instances
// groups of data-parallel ranks holds the optimizer's state once.
type Shape struct {
	TP        int `yaml:"tp"`
	DP        int `yaml:"dp"`
	PP        int `yaml:"pp"`
	Zero      int `yaml:"zero,omitempty"`
	Instances int `yaml:"instances,omitempty"`
}

// validate bounds how the optimizer is spread.
func (s Shape) validate() error {
	switch {
	case s.Zero != 0 && s.Zero != 1:
		return fmt.Errorf("zero is %d, it must be 0 or 1", s.Zero)
	case s.Zero == 0 && s.Instances != 0:
		return errors.New("instances goes with zero: 1")
	case s.Instances < 0 || s.Instances > 0 && s.DP%s.Instances != 0:
		return fmt.Errorf("instances is %d, it must divide dp %d", s.Instances, s.DP)
	}
	return nil
}

// Layout is the shape in the shared vocabulary.
func (s Shape) Layout() falcon.Layout {
	return falcon.Layout{TP: s.TP, DP: s.DP, PP: s.PP}
}

// Load reads a shipped scenario by name or a file by path.
func Load(nameOrPath string) (Scenario, error) {
	if !strings.ContainsAny(nameOrPath, "/.") {
		b, err := shipped.ReadFile("scenarios/" + nameOrPath + ".yaml")
		if err != nil {
			return Scenario{}, fmt.Errorf("%w: there is no scenario %q; shipped are %s, or give a file",
				ErrScenario, nameOrPath, strings.Join(Names(), ", "))
		}
		return parseScenario(b, nameOrPath)
	}
	f, err := os.Open(nameOrPath)
	if err != nil {
		return Scenario{}, fmt.Errorf("lab: can't read the scenario: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return Scenario{}, fmt.Errorf("lab: can't read the scenario: %w", err)
	}
	if len(b) > maxFileBytes {
		return Scenario{}, fmt.Errorf("%w: %s is larger than %d bytes", ErrScenario, nameOrPath, maxFileBytes)
	}
	base := filepath.Base(nameOrPath)
	return parseScenario(b, strings.TrimSuffix(base, filepath.Ext(base)))
}

// Names lists the shipped scenarios.
func Names() []string {
	entries, err := shipped.ReadDir("scenarios")
	if err != nil {
		panic("lab: embedded scenarios are missing: " + err.Error())
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

func parseScenario(b []byte, name string) (Scenario, error) {
	s := Scenario{
		Name:         name,
		MicroBatches: 8,
		ForwardMs:    5,
		WarmUp:       10,
		Iterations:   100,
		LinkMBs:      1000,
		NICs:         1,
	}
	d := yaml.NewDecoder(strings.NewReader(string(b)))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return Scenario{}, fmt.Errorf("%w: %s", ErrScenario, joinLines(err))
	}
	return s, s.Validate()
}

// joinLines keeps a YAML error to one clear sentence.
func joinLines(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n")
	s = strings.ReplaceAll(s, " into type lab.Scenario", "")
	s = strings.ReplaceAll(s, " in type lab.Scenario", "")
	s = strings.ReplaceAll(s, " in type lab.Event", "")
	s = strings.ReplaceAll(s, " in type lab.Shape", "")
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", "; ")), " ")
}

// Validate returns, in one sentence, what is wrong with the scenario.
func (s Scenario) Validate() error {
	l := s.Layout.Layout()
	if err := l.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrScenario, err)
	}
	switch {
	case l.World() > maxRanks:
		return fmt.Errorf("%w: %d ranks are more than the %d that one machine can emulate",
			ErrScenario, l.World(), maxRanks)
	case s.Nodes < 1 || l.World()%s.Nodes != 0:
		return fmt.Errorf("%w: %d ranks (tp %d x dp %d x pp %d) can't be spread evenly over %d nodes",
			ErrScenario, l.World(), l.TP, l.DP, l.PP, s.Nodes)
	case l.World()/s.Nodes > gpusMax ||
		s.Spares < 0 ||
		s.Spares > nodesMax ||
		s.nodeCount() > nodesMax:
		return fmt.Errorf(
			"%w: at most %d nodes of %d GPUs with the spares, this asks for %d and %d spares of %d",
			ErrScenario, nodesMax, gpusMax, s.Nodes, s.Spares, l.World()/s.Nodes,
		)
	case s.Iterations < 1 || s.Iterations > maxIterations:
		return fmt.Errorf("%w: iterations is %d, it must be 1 to %d",
			ErrScenario, s.Iterations, maxIterations)
	case s.MicroBatches < 1 || s.MicroBatches > 1024:
		return fmt.Errorf("%w: micro_batches is %d, it must be 1 to 1024 per replica",
			ErrScenario, s.MicroBatches)
	case s.ForwardMs < 1 || s.ForwardMs > 10_000:
		return fmt.Errorf("%w: forward_ms is %v, it must be 1 to 10000", ErrScenario, s.ForwardMs)
	case !(s.LinkMBs >= 1 && s.LinkMBs <= 100_000):
		return fmt.Errorf("%w: link_mb_s is %v, it must be 1 to 100000", ErrScenario, s.LinkMBs)
	case s.NICs < 1 || s.NICs > gpusMax:
		return fmt.Errorf("%w: nics is %d, it must be 1 to %d per node", ErrScenario, s.NICs, gpusMax)
	case s.Checkpoints < 0:
		return fmt.Errorf("%w: checkpoint_every is %d, it must be 0 (only when ordered) or more",
			ErrScenario, s.Checkpoints)
	case len(s.Events) > maxEvents:
		return fmt.Errorf("%w: %d events are more than %d", ErrScenario, len(s.Events), maxEvents)
	}
	if err := errors.Join(s.Layout.validate(), s.checkState()); err != nil {
		return fmt.Errorf("%w: %s", ErrScenario, joinLines(err))
	}
	for i, e := range s.Events {
		if err := s.checkEvent(e); err != nil {
			return fmt.Errorf("%w: event %d: %s", ErrScenario, i, joinLines(err))
		}
	}
	return nil
}

// checkState bounds what is emulated of a GPU's state, so that no copy takes
// longer than a run.
func (s Scenario) checkState() error {
	for _, v := range []struct {
		name       string
		value, top float64
	}{{"state_mb", s.StateMB, 1e6}, {"copy_gb_s", s.CopyGBs, 1e6}, {"disk_mb_s", s.DiskMBs, 1e6}} {
		if !(v.value >= 0 && v.value <= v.top) {
			return fmt.Errorf("%s is %v, it must be 0 (not emulated) to %g", v.name, v.value, v.top)
		}
	}
	for r, ms := range s.Overheads {
		if r.Level() < 2 && r != "S4 fence" || !(ms > 0 && ms <= 1e9) {
			return fmt.Errorf(
				"overheads_ms gives %s %v ms, it must give S2, S3, S4 or S4 fence a positive number",
				r, ms,
			)
		}
	}
	return nil
}

func (s Scenario) checkEvent(e Event) error {
	if e.AtIteration < 0 || (e.UntilIteration != 0 && e.UntilIteration <= e.AtIteration) {
		return fmt.Errorf("until_iteration %d must lie behind at_iteration %d, which must not be negative",
			e.UntilIteration, e.AtIteration)
	}
	return s.checkFault(e)
}

// Placement puts consecutive ranks on consecutive GPUs.
func (s Scenario) Placement() falcon.Placement {
	per := s.gpusPerNode()
	out := make(falcon.Placement, s.Layout.Layout().World())
	for r := range out {
		out[r] = falcon.NewDevice(nodeNameOf(r/per), r%per)
	}
	return out
}

// rejoinsExpected reports whether ranks leave training for a recovery.
func (s Scenario) rejoinsExpected() bool {
	return s.Park == nil || *s.Park
}

func (s Scenario) gpusPerNode() int {
	return s.Layout.Layout().World() / s.Nodes
}

// nodeCount counts the spares too; they come behind the nodes in use.
func (s Scenario) nodeCount() int { return s.Nodes + s.Spares }

func nodeNameOf(i int) falcon.Node {
	return falcon.Node(fmt.Sprintf("n%d", i))
}

func (s Scenario) nodeIndex(n falcon.Node) (int, bool) {
	for i := range s.nodeCount() {
		if nodeNameOf(i) == n {
			return i, true
		}
	}
	return 0, false
}
