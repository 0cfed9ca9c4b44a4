package launch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// Bounds of a node's command.
const (
	RanksMax    = 64 // of one node
	argsMax     = 256
	argBytesMax = 4096
	envMax      = 256
	worldMax    = 1 << 20
)

// Config is the section "launch" of the agent's configuration.
type Config struct {
	Command   []string          `yaml:"command"`    // program and arguments; empty = this node starts nothing
	Env       map[string]string `yaml:"env"`        // added to the agent's own environment
	NodeRanks int               `yaml:"node_ranks"` // training processes that fit, one per GPU
	Dir       string            `yaml:"dir"`        // working directory; empty = /
	LogDir    string            `yaml:"log_dir"`    // for what the processes print; empty = nowhere
	// Checkpoint is where the newest checkpoint is found: a path with {iteration}, such as
	// /ckpt/iter_{iteration}/metadata.json, or a file that holds the number; empty = the adapter reports it.
	Checkpoint string `yaml:"checkpoint"`
	// seconds from SIGTERM to SIGKILL for processes without an adapter; 0 = graceDefault
	GraceS int `yaml:"grace_s"`

	Standby Standby `yaml:"standby,omitempty"`
}

const (
	graceDefault = 15 * time.Second
	graceMax     = 30 * time.Second // half of what a command may take
)

func (c Config) graceTime() time.Duration {
	return cmp.Or(time.Duration(c.GraceS)*time.Second, graceDefault)
}

// resumeWord is replaced by "--resume", or by no argument at all.
const resumeWord = "{resume}"

// ownVariables are set by a launch; the configuration may not set them.
// FALCON_JOB and FALCON_SHM_DIR are too, but a configuration that says the same
// is none that says otherwise (CheckSame).
var ownVariables = []string{
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "FALCON_DEVICE", "FALCON_GENERATION",
	"FALCON_NODE", "FALCON_RESUME", "FALCON_JOIN", markVariable, standbyVariable, importsVariable,
}

// markVariable marks the processes of one launch, for an agent that was killed
// before it could write their numbers down.
const markVariable = "FALCON_LAUNCH"

// serviceVariables are those by which a service manager speaks to the agent
// alone.
var serviceVariables = []string{
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
}

// Ranks is how many training processes the node can start, 0 for none.
func (c Config) Ranks() int {
	if len(c.Command) == 0 {
		return 0
	}
	return c.NodeRanks
}

// Check says in one sentence what can't be used.
func (c Config) Check() error {
	if len(c.Command) == 0 {
		if c.NodeRanks != 0 ||
			len(c.Env) > 0 ||
			c.LogDir != "" ||
			c.Dir != "" ||
			c.GraceS != 0 ||
			c.Checkpoint != "" ||
			c.Standby.isSet() {
			return errors.New("launch has settings but no command")
		}
		return nil
	}
	if c.NodeRanks < 1 || c.NodeRanks > RanksMax {
		return fmt.Errorf("launch.node_ranks is %d, it must be from 1 to %d", c.NodeRanks, RanksMax)
	}
	if c.GraceS < 0 || c.graceTime() > graceMax {
		return fmt.Errorf("launch.grace_s is %d, it must be from 1 to %d, or 0 for %d",
			c.GraceS, int(graceMax.Seconds()), int(graceDefault.Seconds()))
	}
	for key, path := range map[string]string{"command": c.Command[0], "dir": c.Dir, "log_dir": c.LogDir} {
		if path != "" && !filepath.IsAbs(path) || key == "command" && path == "" {
			return fmt.Errorf("launch.%s: %q is no absolute path", key, path)
		}
	}
	return cmp.Or(c.checkCheckpoint(), c.checkWords(), c.checkStandby())
}

func (c Config) checkWords() error {
	if len(c.Command) > argsMax || len(c.Env) > envMax {
		return fmt.Errorf("launch has %d arguments and %d variables, at most %d and %d are possible",
			len(c.Command), len(c.Env), argsMax, envMax)
	}
	for _, a := range c.Command {
		if len(a) > argBytesMax || strings.ContainsRune(a, 0) {
			return fmt.Errorf(
				"launch.command: an argument has %d bytes or a zero byte, at most %d are possible",
				len(a), argBytesMax,
			)
		}
	}
	for key, value := range c.Env {
		switch {
		case key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0):
			return fmt.Errorf("launch.env: %q is no name of a variable", key)
		case slices.Contains(ownVariables, key):
			return fmt.Errorf("launch.env: %s is set by the launch itself, leave it out", key)
		}
	}
	return nil
}

// CheckSame wants a variable that the launch sets to have the launch's value
// where the configuration sets it too.
func (c Config) CheckSame(key, value string) error {
	if have, set := c.Env[key]; set && have != value {
		return fmt.Errorf("launch.env: %s is %q, but is set to %q by the launch: leave it out",
			key, have, value)
	}
	return nil
}

// Rank is one process to be started.
type Rank struct {
	Rank      int           `json:"rank"`
	LocalRank int           `json:"local_rank"`
	Device    falcon.Device `json:"device"`
}

// Plan is what one launch starts on this node.
type Plan struct {
	Generation uint64 `json:"generation"`
	World      int    `json:"world"`
	Resume     bool   `json:"resume"`
	// processes of other ranks and earlier generations go on meanwhile
	Join  bool   `json:"join,omitempty"`
	Ranks []Rank `json:"ranks"`
}

func (p Plan) samePlan(q Plan) bool {
	return p.Generation == q.Generation &&
		p.World == q.World &&
		p.Resume == q.Resume &&
		p.Join == q.Join &&
		slices.Equal(p.Ranks, q.Ranks)
}

// validate wants a plan that this node can carry out.
func (p Plan) validate(c Config, node falcon.Node) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrPlan}, args...)...)
	}
	switch n := len(p.Ranks); {
	case c.Ranks() == 0:
		return bad("this node can't start processes: set launch.command in its agent.yaml")
	case p.Generation == 0:
		return bad("a launch needs a generation above 0")
	case p.World < 1 || p.World > worldMax:
		return bad("a world of %d ranks", p.World)
	case n < 1 || n > c.NodeRanks:
		return bad("%d ranks are wanted here, launch.node_ranks allows 1 to %d", n, c.NodeRanks)
	}
	ranks := map[int]bool{}
	locals := map[int]bool{}
	devices := map[falcon.Device]bool{}
	for _, r := range p.Ranks {
		d, err := falcon.ParseDevice(string(r.Device))
		switch {
		case err != nil || d.Node() != node:
			return bad("device %q is not one of node %s", r.Device, node)
		case r.Rank < 0 || r.Rank >= p.World || ranks[r.Rank]:
			return bad("rank %d is named twice or lies outside of a world of %d", r.Rank, p.World)
		case r.LocalRank < 0 || r.LocalRank >= c.NodeRanks || locals[r.LocalRank]:
			return bad("local rank %d is named twice or is not below launch.node_ranks, %d",
				r.LocalRank, c.NodeRanks)
		case devices[d]:
			return bad("device %s is given to two ranks", d)
		}
		ranks[r.Rank] = true
		locals[r.LocalRank] = true
		devices[d] = true
	}
	return nil
}

// placeholders replaces the placeholders of a rank in arguments and variables.
func (p Plan) placeholders(r Rank) *strings.Replacer {
	resume := ""
	if p.Resume {
		resume = "--resume"
	}
	return strings.NewReplacer(
		"{rank}",
		strconv.Itoa(r.Rank),
		"{local_rank}",
		strconv.Itoa(r.LocalRank),
		"{world}",
		strconv.Itoa(p.World),
		"{generation}",
		strconv.FormatUint(p.Generation, 10),
		"{device}",
		string(r.Device),
		resumeWord,
		resume,
	)
}

// argumentsFor is the command of one rank.
func (c Config) argumentsFor(p Plan, r Rank) []string {
	words := p.placeholders(r)
	var out []string
	for _, a := range c.Command {
		if a != resumeWord || p.Resume {
			out = append(out, words.Replace(a))
		}
	}
	return out
}

// localWorld is how many processes the node has once the plan is carried out. One
// that joins others takes the place that a process of its rank had on a full node.
func (c Config) localWorld(p Plan) int {
	if p.Join {
		return c.NodeRanks
	}
	return len(p.Ranks)
}

// environmentFor is the environment of one rank: the agent's, the configuration's, and
// last its identity.
func (l *Launcher) environmentFor(base []string, p Plan, r Rank) []string {
	own := map[string]string{
		"RANK":              strconv.Itoa(r.Rank),
		"WORLD_SIZE":        strconv.Itoa(p.World),
		"LOCAL_RANK":        strconv.Itoa(r.LocalRank),
		"LOCAL_WORLD_SIZE":  strconv.Itoa(l.cfg.localWorld(p)),
		"FALCON_DEVICE":     string(r.Device),
		"FALCON_NODE":       string(l.at.Node),
		"FALCON_GENERATION": strconv.FormatUint(p.Generation, 10),
		"FALCON_JOB":        l.at.Job,
		"FALCON_SHM_DIR":    l.at.ShmDir,
		"FALCON_RESUME":     "0",
		"FALCON_JOIN":       "0",
		markVariable:        l.markValue(p, r),
	}
	if p.Resume {
		own["FALCON_RESUME"] = "1"
	}
	if p.Join {
		own["FALCON_JOIN"] = "1"
	}
	var out []string
	for _, kv := range base {
		key, _, _ := strings.Cut(kv, "=")
		_, mine := own[key]
		mine = mine || slices.Contains(ownVariables, key)
		_, set := l.cfg.Env[key]
		if !mine && !set && !slices.Contains(serviceVariables, key) {
			out = append(out, kv)
		}
	}
	words := p.placeholders(r)
	for _, key := range slices.Sorted(maps.Keys(l.cfg.Env)) {
		if _, mine := own[key]; !mine { // the first of two would count
			out = append(out, key+"="+words.Replace(l.cfg.Env[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		out = append(out, key+"="+own[key])
	}
	return out
}

// markValue names one process of one launch, on all of the machine.
func (l *Launcher) markValue(p Plan, r Rank) string {
	return fmt.Sprintf("%s#%d.%d", l.path, p.Generation, r.Rank)
}
