package recovery

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/failslow/falcon"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// Each testdata/*.txt is a story: commands, and below each, after "----", what
// the machine says. Run with -update to write the answers anew, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	s := newScript(t)
	answer := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "----":
			answer = true
		case line == "":
			answer = false
			got.WriteString("\n")
		case answer:
		case strings.HasPrefix(line, "#"):
			got.WriteString(line + "\n")
		default:
			got.WriteString(line + "\n----\n" + s.do(line))
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), got.String()); diff != "" {
		t.Errorf("%s tells another story (-want +got):\n%s", file, diff)
	}
}

// script plays the agents and the journal. "restart" goes on with a machine
// that knows no more than the journal and what agents tell when they are back.
type script struct {
	t         *testing.T
	m         *Machine
	start     time.Time
	now       time.Time
	job       Job
	policy    falcon.Policy
	procs     map[falcon.Rank]Process
	journal   map[string][]byte
	launch    Launch // newest
	launches  map[uint64]Launch
	rejoin    Rejoin
	suspend   uint64
	iteration int64
}

func scriptConfig() Config {
	return Config{ReplaceMost: 30 * time.Second, SpareWait: 30 * time.Second, RejoinMost: 30 * time.Second, RestartMost: time.Minute}
}

func newScript(t *testing.T) *script {
	now := time.Unix(1000, 0)
	return &script{t: t, m: New(scriptConfig()), start: now, now: now, procs: map[falcon.Rank]Process{}, journal: map[string][]byte{}, launches: map[uint64]Launch{}}
}

// words are the arguments of one command, "key=value".
type words map[string]string

func (s *script) do(line string) string {
	f := strings.Fields(line)
	w := words{}
	for _, kv := range f[1:] {
		k, v, _ := strings.Cut(kv, "=")
		w[k] = strings.ReplaceAll(v, "_", " ")
	}
	switch f[0] {
	case "show":
		return s.show(w["id"])
	case "restart":
		return s.restart()
	case "forget": // nobody will tell of this rank's process again
		delete(s.procs, s.rank(w["rank"]))
		return ""
	case "run":
		return s.run(w)
	case "exposure":
		return s.exposure()
	}
	return s.feed(f[0], w)
}

func (s *script) feed(verb string, w words) string {
	var out string
	for _, in := range s.inputs(verb, w) {
		if d, ok := in.(Decision); ok {
			if err := s.m.Check(d); err != nil {
				out += "refused: " + err.Error() + "\n"
			}
		}
		s.m.Step(s.now, in)
		out += s.drain()
	}
	return out
}

func (s *script) num(w words, key string, def int64) int64 {
	v, ok := w[key]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func list(v string) []string {
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

func (s *script) rank(v string) falcon.Rank {
	n, err := strconv.Atoi(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return falcon.Rank(n)
}

func (s *script) inputs(verb string, w words) []Input {
	switch verb {
	case "job":
		return s.jobInput(w)
	case "policy":
		s.policy = falcon.Policy{Mode: falcon.Mode(w["mode"]), Frozen: w["frozen"] == "true", Recovery: falcon.RecoveryPolicy{
			Approval: w["approval"], Countdown: float64(s.num(w, "countdown", 0)), FenceAlone: w["alone"] == "true", AllowShrink: w["shrink"] == "true",
			InPlace: int(s.num(w, "in_place", 0)), PerHour: int(s.num(w, "per_hour", 0)),
		}}
		return []Input{SetPolicy{s.policy}}
	case "up": // processes of ranks, all by default
		return s.up(w)
	case "exit":
		return s.exit(w)
	case "park":
		return s.park(w)
	case "suspended":
		return each(s.nodes(w), func(n falcon.Node) Input {
			return Suspended{Node: n, Generation: uint64(s.num(w, "generation", int64(s.suspend))), Refused: w["refused"]}
		})
	case "joined":
		return s.joined(w)
	case "launched":
		return []Input{Launched{Node: falcon.Node(w["node"]), Generation: uint64(s.num(w, "generation", int64(s.launch.Generation))), Failed: w["failed"]}}
	case "tabled":
		return each(s.nodes(w), func(n falcon.Node) Input {
			return Tabled{Node: n, Generation: uint64(s.num(w, "generation", int64(s.generation()))), Failed: w["failed"]}
		})
	case "rejoined":
		return s.rejoined(w)
	}
	return s.sign(verb, w)
}

func (s *script) sign(verb string, w words) []Input {
	switch verb {
	case "node":
		return []Input{Node{Node: falcon.Node(w["node"]), Alive: w["alive"] == "true", Reset: w["reset"] == "true"}}
	case "device":
		return []Input{Device{Device: falcon.Device(w["device"]), Fatal: w["fatal"] == "true", Code: int(s.num(w, "code", 0)), Text: w["text"]}}
	case "pace":
		ms, _ := strconv.ParseFloat(w["ms"], 64)
		return []Input{Pace{Iteration: s.num(w, "i", s.iteration), Ms: ms, Held: w["held"] == "true"}}
	case "decide":
		hash := w["hash"]
		if hash == "seen" {
			c, _ := s.m.Recovery(w["id"])
			hash = c.PlanHash
		}
		return []Input{Decision{Recovery: w["id"], PlanHash: hash, Verb: Verb(w["verb"]), By: w["by"], From: "unix:1000", Reason: w["reason"]}}
	case "demand":
		d := Demand{Node: falcon.Node(w["node"]), Rank: -1, By: w["by"], From: "unix:1000", Reason: w["reason"]}
		if v, ok := w["rank"]; ok {
			d.Rank = s.rank(v)
		}
		return []Input{d}
	}
	s.t.Fatalf("no command %q", verb)
	return nil
}

func each[T any](list []T, f func(T) Input) []Input {
	var out []Input
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

// jobInput places per ranks a node, on n0, n1, ... unless on says otherwise.
func (s *script) jobInput(w words) []Input {
	per := int(s.num(w, "per", 2))
	j := Job{
		Epoch: uint64(s.num(w, "epoch", int64(s.job.Epoch))), Generation: uint64(s.num(w, "generation", 0)), StateMB: 100,
		Layout:  falcon.Layout{TP: int(s.num(w, "tp", 1)), DP: int(s.num(w, "dp", 2)), PP: int(s.num(w, "pp", 2))},
		Adapter: w["adapter"] != "false", Checkpoint: s.num(w, "checkpoint", falcon.NoIteration), CanLaunch: map[falcon.Node]bool{},
		ZeRO: falcon.ZeRO{Stage: int(s.num(w, "zero", 0)), Instances: int(s.num(w, "instances", 0))},
	}
	on := list(w["on"])
	for r := range j.Layout.World() {
		n := fmt.Sprintf("n%d", r/per)
		if on != nil {
			n = on[r/per]
		}
		j.Placement = append(j.Placement, falcon.NewDevice(falcon.Node(n), r%per))
		j.CanLaunch[falcon.Node(n)] = true
	}
	for _, n := range list(w["spares"]) {
		j.Spares = append(j.Spares, falcon.Node(n))
		j.CanLaunch[falcon.Node(n)] = true
	}
	for _, n := range list(w["nolaunch"]) {
		j.CanLaunch[falcon.Node(n)] = false
	}
	for range j.Layout.DP {
		j.Splits = append(j.Splits, 4)
	}
	s.job = j
	return []Input{j}
}

func (s *script) ranks(w words) []falcon.Rank {
	if v, ok := w["ranks"]; ok {
		var out []falcon.Rank
		for _, x := range list(v) {
			out = append(out, s.rank(x))
		}
		return out
	}
	return slices.Sorted(maps.Keys(s.procs))
}

func (s *script) placement() falcon.Placement {
	if c, ok := s.m.Current(); ok {
		return c.Placement
	}
	return s.job.Placement
}

func (s *script) nodes(w words) []falcon.Node {
	if v, ok := w["node"]; ok {
		var out []falcon.Node
		for _, n := range list(v) {
			out = append(out, falcon.Node(n))
		}
		return out
	}
	c, _ := s.m.Current()
	var out []falcon.Node
	for _, d := range s.placement() {
		if n := d.Node(); !slices.Contains(out, n) && !slices.Contains(c.Fenced, n) {
			out = append(out, n)
		}
	}
	return out
}

func (s *script) generation() uint64 {
	c, _ := s.m.Current()
	return c.Generation
}

func (s *script) up(w words) []Input {
	var out []Input
	for r, d := range s.job.Placement {
		if _, ok := w["ranks"]; ok && !slices.Contains(s.ranks(w), falcon.Rank(r)) {
			continue
		}
		p := Process{Rank: falcon.Rank(r), Node: d.Node(), Pid: 100 + r, Generation: uint64(s.num(w, "generation", 0)), Alive: true}
		s.procs[p.Rank] = p
		out = append(out, p, Beat{Rank: p.Rank, Pid: p.Pid, Iteration: s.iteration, Tag: s.iteration})
	}
	for _, n := range s.nodes(words{}) {
		out = append(out, Node{Node: n, Alive: true})
	}
	return out
}

func (s *script) exit(w words) []Input {
	var out []Input
	for _, r := range s.ranks(w) {
		p := s.procs[r]
		if v, ok := w["generation"]; ok {
			p.Generation, _ = strconv.ParseUint(v, 10, 64)
		}
		p.Alive, p.Park, p.Normal, p.Exit = false, nil, w["normal"] == "true", w["how"]
		if w["generation"] == "" {
			s.procs[r] = p
		}
		out = append(out, p)
	}
	return out
}

// park has processes stand with step and the one before it.
func (s *script) park(w words) []Input {
	var out []Input
	c, _ := s.m.Current()
	for _, r := range s.ranks(w) {
		p, ok := s.procs[r]
		if _, asked := w["ranks"]; !ok || !p.Alive || (!asked && slices.Contains(c.Fenced, p.Node)) {
			continue
		}
		if p.Park != nil && p.Park.Joining { // it holds nothing still
			p.Park = &Park{Generation: s.suspend, Joining: true, Tag: falcon.NoIteration, Hold: p.Park.Hold}
			s.procs[r] = p
			out = append(out, p)
			continue
		}
		step := s.num(w, "step", s.iteration)
		sum := s.job.Layout.Coord(r)
		shard := uint64(sum.TP + 10*sum.PP)
		p.Park = &Park{
			Generation: uint64(s.num(w, "generation", int64(s.suspend))), Tag: s.num(w, "tag", step),
			Hold: falcon.RankHold{Steps: [2]int64{step, step - 1}, Sums: [2]uint64{1000*uint64(step) + shard + uint64(s.num(w, "bad", 0)), 1000*uint64(step-1) + shard}},
		}
		s.procs[r] = p
		out = append(out, p)
	}
	return out
}

// joined has the processes of the newest launch park.
func (s *script) joined(w words) []Input {
	var out []Input
	l := s.launches[uint64(s.num(w, "generation", int64(s.launch.Generation)))]
	for _, r := range slices.Sorted(maps.Keys(l.Ranks)) {
		d := l.Ranks[r]
		if v, ok := w["ranks"]; ok && !slices.Contains(list(v), fmt.Sprint(int(r))) {
			continue
		}
		p := Process{
			Rank: r, Node: d.Node(), Pid: int(1000*l.Generation) + int(r), Generation: l.Generation, Alive: true,
			Park: &Park{Generation: l.Generation, Joining: true, Tag: falcon.NoIteration, Hold: falcon.RankHold{Steps: [2]int64{-1, -1}}},
		}
		s.procs[r] = p
		out = append(out, Node{Node: p.Node, Alive: true}, p)
	}
	return out
}

func (s *script) rejoined(w words) []Input {
	return each(s.ranks(w), func(r falcon.Rank) Input {
		p := s.procs[r]
		p.Park = nil
		s.procs[r] = p
		return Rejoined{
			Rank: r, Generation: uint64(s.num(w, "generation", int64(s.rejoin.Generation))), Status: int32(s.num(w, "status", 0)),
			Iteration: s.num(w, "i", s.rejoin.Resume), GroupsMs: 30, RestoreMs: 50,
		}
	})
}

// run lets time pass in half seconds: agents are heard every two, but those in
// except, and tell an iteration more each time, unless it stands still.
func (s *script) run(w words) string {
	out := ""
	beats := s.num(w, "beats", 1)
	for range 4 * beats {
		s.now = s.now.Add(500 * time.Millisecond)
		s.m.Tick(s.now)
		out += s.drain()
		if s.now.Sub(s.start)%(2*time.Second) != 0 {
			continue
		}
		if w["still"] != "true" {
			s.iteration += 10
		}
		for _, in := range s.beats(w) {
			s.m.Step(s.now, in)
			out += s.drain()
		}
	}
	return out
}

func (s *script) beats(w words) []Input {
	var out []Input
	except := list(w["except"])
	for _, n := range s.nodes(words{}) {
		if !slices.Contains(except, string(n)) {
			out = append(out, Node{Node: n, Alive: true})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(s.procs)) {
		p := s.procs[r]
		if slices.Contains(except, string(p.Node)) {
			continue
		}
		b := Beat{Rank: r, Pid: p.Pid, Iteration: s.iteration, Tag: s.iteration, HookAgeMs: 1}
		if slices.Contains(list(w["frozen"]), fmt.Sprint(int(r))) {
			b.HookAgeMs = float64(s.num(w, "age", 5000))
		}
		if p.Alive {
			out = append(out, b)
		}
	}
	return out
}

// restart is the engine's way of bringing a machine back.
func (s *script) restart() string {
	s.m = New(scriptConfig())
	back := Restored{NextID: len(s.journal) + 1}
	for _, id := range slices.Sorted(maps.Keys(s.journal)) {
		var c falcon.Recovery
		if err := json.Unmarshal(s.journal[id], &c); err != nil {
			s.t.Fatal(err)
		}
		back.Recoveries = append(back.Recoveries, c)
	}
	out := ""
	in := []Input{s.job, SetPolicy{s.policy}, back}
	for _, r := range slices.Sorted(maps.Keys(s.procs)) {
		in = append(in, s.procs[r])
	}
	for _, v := range in {
		s.m.Step(s.now, v)
		out += s.drain()
	}
	return out
}

// drain prints what the machine wants, and has it done.
func (s *script) drain() string {
	r := s.m.Ready()
	s.m.Advance()
	out := ""
	for _, n := range r.Notes {
		out += fmt.Sprintf("%s %d: %s\n", n.Kind, n.Severity, n.Text)
	}
	for _, c := range r.Recoveries {
		out += fmt.Sprintf("persist %s %s generation %d\n", c.ID, c.State, c.Generation)
		b, err := json.Marshal(c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.journal[c.ID] = b
		if c.State == falcon.RecoveryResumed {
			s.job.Placement = c.Placement
		}
	}
	for _, c := range r.Commands {
		out += s.command(c) + "\n"
	}
	return out
}

func (s *script) command(c Command) string {
	switch c := c.(type) {
	case Suspend:
		s.suspend = c.Generation
		return fmt.Sprintf("-> suspend %d on %v, optimizer %d ms", c.Generation, c.Nodes, c.WaitMs)
	case Fence:
		return fmt.Sprintf("-> fence below %d nodes %v ranks %v", c.Generation, c.Nodes, c.Ranks)
	case Launch:
		s.launch, s.launches[c.Generation] = c, c
		return fmt.Sprintf("-> launch %d %v of %d", c.Generation, c.Ranks, c.World)
	case Table:
		return fmt.Sprintf("-> table %d %v", c.Generation, c.Placement)
	case Rejoin:
		s.rejoin = c
		text := fmt.Sprintf("-> rejoin %d order %d at %d checkpoint %v splits %v", c.Generation, c.Order, c.Resume, c.Checkpoint, c.Splits)
		for _, v := range c.Moves {
			text += fmt.Sprintf(" %d<-%d", v.Rank, v.From)
		}
		return text
	case Stop:
		return fmt.Sprintf("-> stop %d on %v ranks %v", c.Generation, c.Nodes, c.Ranks)
	case Restart:
		s.launch = Launch{Generation: c.Generation}
		return fmt.Sprintf("-> restart %d on %v: %s", c.Generation, c.Placement, c.Reason)
	}
	s.t.Fatalf("command %T", c)
	return ""
}

func (s *script) show(id string) string {
	c, ok := s.m.Recovery(id)
	if !ok {
		return "none\n"
	}
	out := fmt.Sprintf("%s %s generation %d attempts %d by %q reason %q\n", c.ID, c.State, c.Generation, c.Attempts, c.DecidedBy, c.Reason)
	for _, f := range c.Faults {
		out += fmt.Sprintf("  fault %s node %q device %q ranks %v after %.1f s: %s\n", f.Kind, f.Node, f.Device, f.Ranks, float64(f.DetectedNs-f.FirstNs)/1e9, strings.Join(f.Evidence, "; "))
	}
	out += fmt.Sprintf("  replaced %v survivors %v fenced %v\n  on %v\n", c.Replaced, c.Survivors, c.Fenced, c.Placement)
	out += fmt.Sprintf("  before %d resume %d checkpoint %v no return %v pending %v launched %v failed rejoins %d\n", c.Before, c.Resume, c.Checkpoint, c.NoReturn, c.Pending, c.Launched, c.FailedRejoins)
	for _, v := range c.Moves {
		out += fmt.Sprintf("  move %d<-%d\n", v.Rank, v.From)
	}
	return out + fmt.Sprintf("  phases %v predicted %v\n", c.PhaseMs, c.PredictMs)
}

func (s *script) exposure() string {
	list, err := s.m.Exposure()
	if err != nil {
		return err.Error() + "\n"
	}
	out := ""
	for _, e := range list {
		out += fmt.Sprintf("%s gone %v lost %v\n", e.Label(), e.Gone, e.Lost)
	}
	return out
}
