package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// How the jobs of TestTorchDeaths are made: on two nodes with a spare, a checkpoint every few iterations.
const (
	deathRanks      = 4
	deathPerNode    = 2
	deathIterations = 30
	deathKnown      = 120 // more of a job without an adapter, whose layout is inferred: by then it is known
	deathEvery      = 4   // iterations from one checkpoint to the next
	deathMicro      = 4   // micro-batches of a replica
	deathFirst      = 8   // iteration in which the earliest death comes: a checkpoint is known by then
	deathLast       = 18
	deathDelayMs    = 120 // most, from the point to the death: some two iterations
)

// deathJobs are the jobs by their adapter, and whether falcon_torch.run enters them.
var deathJobs = []deathJob{
	{"ddp", "outside"},
	{"ddp", "inside"},
	{"hsdp", "outside"},
	{"hsdp", "inside"},
	{"fsdp", "outside"},
	{"fsdp", "inside"},
	{"pipeline", "outside"},
	{"pipeline", "inside"},
	{"none", "outside"},
}

type deathJob struct{ adapter, entry string }

// deathKind is a kind of end. It comes in each of its phases, or in a random one.
type deathKind struct {
	name   string
	by     string // kill, raise: the rank's own hand; wait: the test deals it while the rank waits
	whom   string // rank, all
	phases []string
	each   bool // a row for each phase
	before bool // the first iteration
}

var trainingPhases = []string{"forward", "backward", "before-update", "update", "after-update", "checkpoint"}

var kindsOfEnd = []deathKind{
	{name: "kill of a rank", by: "kill", whom: "rank", phases: trainingPhases, each: true},
	{name: "kill of a rank, at random", by: "kill", whom: "rank", phases: trainingPhases},
	{name: "error on one rank", by: "raise", whom: "rank", phases: trainingPhases},
	{name: "kill of a node", by: "wait", whom: "rank", phases: trainingPhases},
	{name: "kill of an agent", by: "wait", whom: "rank", phases: trainingPhases},
	{name: "SIGTERM to all", by: "wait", whom: "rank", phases: trainingPhases},
	{name: "SIGINT to all", by: "wait", whom: "rank", phases: trainingPhases},
	{name: "the same error on all", by: "raise", whom: "all", phases: trainingPhases},
	{
		name:   "error on all before the first iteration",
		by:     "raise",
		whom:   "all",
		phases: []string{"start", "groups"},
		before: true,
	},
	{
		name:   "kill of a rank before the first iteration",
		by:     "kill",
		whom:   "rank",
		phases: []string{"groups"},
		before: true,
	},
	{name: "kill of a rank under torchrun, no restart", by: "kill", whom: "rank", phases: trainingPhases},
	{name: "kill of a rank under torchrun, one restart", by: "kill", whom: "rank", phases: trainingPhases},
}

// torchrunRestarts are the restarts that kinds of ends give to torchrun; "" is no torchrun.
var torchrunRestarts = map[string]string{
	"kill of a rank under torchrun, no restart":  "0",
	"kill of a rank under torchrun, one restart": "1",
}

// deathOutcome is what must become of a job.
type deathOutcome string

const (
	goesOn      deathOutcome = "goes on" // as if nothing had been
	inPlace     deathOutcome = "in place, from replicas"
	fromStorage deathOutcome = "in place, from storage"
	restarted   deathOutcome = "restarted whole"
	asked       deathOutcome = "a person is asked" // and nothing is started
)

// deathRow is one line of the table.
type deathRow struct {
	deathJob
	deathKind
}

// name is that of the row in the table.
func (r deathRow) name() string {
	name := r.deathKind.name
	if r.each {
		name += ", " + r.phases[0]
	}
	return name
}

// wants is what must become of the job.
func (r deathRow) wants() deathOutcome {
	switch {
	case r.deathKind.name == "kill of an agent":
		return goesOn
	case r.before, r.whom == "all", r.deathKind.name == "SIGTERM to all", r.deathKind.name == "SIGINT to all":
		return asked
	case r.adapter == "ddp", r.entry == "inside" && r.adapter != "fsdp":
		return inPlace
	case r.entry == "inside": // each shard is there once
		return fromStorage
	}
	return restarted
}

// deathRows are all lines of the table.
func deathRows() []deathRow {
	var out []deathRow
	for _, kind := range kindsOfEnd {
		for _, job := range deathJobs {
			if !kind.each {
				out = append(out, deathRow{job, kind})
				continue
			}
			for _, phase := range kind.phases {
				one := kind
				one.phases = []string{phase}
				out = append(out, deathRow{job, one})
			}
		}
	}
	return out
}

// deathPlay is one play of a row, with what chance has drawn.
type deathPlay struct {
	row    deathRow
	number int
	death  scriptDeath
}

// scriptDeath is what the script is given.
type scriptDeath struct {
	By        string `json:"by"`
	Ranks     []int  `json:"ranks"`
	Iteration int    `json:"iteration"`
	Phase     string `json:"phase"`
	Micro     int    `json:"micro"` // micro-batch of a forward or backward pass
	DelayMs   int    `json:"delay_ms"`
}

// deathPlays are the plays from first on: each row once before one is played again, in
// an order that is drawn.
func deathPlays(first, count int) []deathPlay {
	rows := deathRows()
	order := rand.New(rand.NewPCG(1, 0x646561746873)).Perm(len(rows))
	var out []deathPlay
	for n := first; n < first+count; n++ {
		out = append(out, drawDeath(rows[order[(n-1)%len(rows)]], n))
	}
	return out
}

func drawDeath(row deathRow, number int) deathPlay {
	r := rand.New(rand.NewPCG(uint64(number), 0x706c6179))
	d := scriptDeath{
		By:        row.by,
		Ranks:     []int{r.IntN(deathRanks)},
		Iteration: deathFirst + r.IntN(deathLast-deathFirst),
		Phase:     row.phases[r.IntN(len(row.phases))],
	}
	if row.whom == "all" {
		d.Ranks = []int{0, 1, 2, 3}
	}
	switch d.Phase {
	case "forward", "backward":
		d.Micro = r.IntN(deathMicro)
	case "checkpoint":
		d.Iteration += deathEvery - 1 - d.Iteration%deathEvery
	}
	if row.deathKind.name == "kill of a rank, at random" {
		d.DelayMs = r.IntN(deathDelayMs)
	}
	if row.adapter == "none" {
		d.Iteration += deathKnown
	}
	if row.before {
		d.Iteration = -1
	}
	return deathPlay{row, number, d}
}

// iterations is how long the job is.
func (p deathPlay) iterations() int {
	if p.row.adapter == "none" {
		return deathIterations + deathKnown
	}
	return deathIterations
}

// victims are the ranks that end first, or with their node.
func (p deathPlay) victims() []int {
	if p.row.wants() == goesOn {
		return nil
	}
	at := p.death.Ranks[0]
	if p.row.deathKind.name == "kill of a node" || torchrunRestarts[p.row.deathKind.name] != "" {
		first := at - at%deathPerNode
		return []int{first, first + 1}
	}
	return p.death.Ranks
}

func (p deathPlay) String() string {
	return fmt.Sprintf("%s %s: %s, rank %d in iteration %d, %s %d, after %d ms",
		p.row.adapter, p.row.entry, p.row.name(), p.death.Ranks[0], p.death.Iteration,
		p.death.Phase, p.death.Micro, p.death.DelayMs)
}

// Plays cover every row once before one is played again, and are the same each time.
func TestDeathPlays(t *testing.T) {
	rows := deathRows()
	seen := map[string]int{}
	for _, p := range deathPlays(1, 2*len(rows)) {
		seen[p.row.adapter+p.row.entry+p.row.name()]++
		again := drawDeath(p.row, p.number)
		if !slices.Equal(again.death.Ranks, p.death.Ranks) || again.String() != p.String() {
			t.Errorf("%s, and then %s", p, again)
		}
	}
	if len(seen) != len(rows) {
		t.Errorf("%d of %d rows are played", len(seen), len(rows))
	}
	for row, n := range seen {
		if n != 2 {
			t.Errorf("%s is played %d times, want 2", row, n)
		}
	}
}
