package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var (
	nodePauses = flag.Int("lab-node-pauses", 0,
		"play so many pauses of whole nodes; 0 = the short ones of make check")
	nodePauseSeed = flag.Uint64("lab-node-pause-seed", 1, "seed of the pauses")
)

// pauseIterations is the length of a paused job: enough to see what becomes of the nodes.
const pauseIterations = 220

// liftedIterations is the length of one that lasts until a fence is lifted.
const liftedIterations = 2200

// nodePause stops nodes with their agents and ranks, as a live migration does, and lets them go on.
type nodePause struct {
	nodes  []string
	span   time.Duration
	step   falcon.RecoveryState // of a recovery of another rank in which it begins; "" = without one
	spares int
	whole  bool // the job lasts until the fence of a node that was replaced is lifted
}

// String is the pause in a few words.
func (p nodePause) String() string {
	at := ""
	if p.step != "" {
		at = fmt.Sprintf(" at %s of a recovery", p.step)
	}
	return fmt.Sprintf("%s for %.1f s%s, %d spares",
		strings.Join(p.nodes, " "), p.span.Seconds(), at, p.spares)
}

// kind groups pauses in the table.
func (p nodePause) kind() string {
	who := map[int]string{1: "one node", playNodes / 2: "half", playNodes: "all"}[len(p.nodes)]
	when := "alone"
	if p.step != "" {
		when = "in a recovery"
	}
	return fmt.Sprintf("%s, %s, %d spares", who, when, p.spares)
}

// pauseSteps are the moments at which pauses begin.
var pauseSteps = []falcon.RecoveryState{
	"", falcon.RecoverySuspend, falcon.RecoveryReplace, falcon.RecoveryTable,
	falcon.RecoveryCollect, falcon.RecoveryRejoin, falcon.RecoveryResumed,
}

// randomPause draws a pause of 1 to 60 s, each length with the same chance by its logarithm. The
// steps come in turn, without and with a spare, so that few plays have them all.
func randomPause(rng *rand.Rand, i int) nodePause {
	p := nodePause{step: pauseSteps[i%len(pauseSteps)], spares: i % 2}
	count := []int{1, playNodes / 2, 1, playNodes}[rng.IntN(4)]
	for _, n := range rng.Perm(playNodes)[:count] {
		p.nodes = append(p.nodes, fmt.Sprintf("n%d", n))
	}
	seconds := math.Exp(rng.Float64() * math.Log(60))
	p.span = time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
	return p
}

// shortPauses are played in make check.
var shortPauses = []nodePause{
	{nodes: []string{"n1"}, span: 8 * time.Second},
	{nodes: []string{"n0", "n2"}, span: 8 * time.Second, step: falcon.RecoverySuspend},
	{nodes: []string{"n0", "n1", "n2", "n3"}, span: 8 * time.Second, spares: 1},
}

// knownPauses have cost a job once; they come first of any number. In the first a spare takes over
// from the node, and the job is long enough for its fence to be lifted.
var knownPauses = []nodePause{
	{nodes: []string{"n1"}, span: 12 * time.Second, spares: 1, whole: true},
	{nodes: []string{"n1"}, span: 8 * time.Second},
	{nodes: []string{"n1"}, span: 5 * time.Second},
	{nodes: []string{"n1", "n2"}, span: 5 * time.Second, spares: 1},
	{nodes: []string{"n1", "n2"}, span: 8 * time.Second, spares: 1},
}

// TestNodePauses stops nodes whole while a job trains or recovers: each job must come to its last
// iteration with the reference's weights, and no node may be left fenced.
func TestNodePauses(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	list := shortPauses
	if *nodePauses > 0 {
		rng := rand.New(rand.NewPCG(*nodePauseSeed, 0x706c6179))
		list = knownPauses[:min(len(knownPauses), *nodePauses)]
		for i := range *nodePauses - len(list) {
			list = append(list, randomPause(rng, i))
		}
	}
	var c tally
	for i, p := range list {
		began := time.Now()
		bad := p.play(t)
		c.add(t, p.kind(), fmt.Sprintf("%d: %s", i+1, p), bad, time.Since(began))
	}
	c.report(t)
}

// play plays one pause and says what was wrong.
func (p nodePause) play(t *testing.T) []string {
	iterations := pauseIterations
	if p.whole {
		iterations = liftedIterations
	}
	ref := playReference(t, iterations)
	l := startPlay(t, playScenario4("pause", p.spares, iterations))
	if p.step != "" {
		if err := l.recoveryReaches(p.step); err != nil {
			return append([]string{err.Error()}, l.finish(ref, 0)...)
		}
	}
	for _, n := range p.nodes {
		if err := l.ask("freeze", n, p.span); err != nil {
			return append([]string{err.Error()}, l.finish(ref, 0)...)
		}
	}
	switch {
	case p.whole:
		return l.finish(ref, p.span+3*playEndsWithin)
	case p.spares == 0:
		return l.finish(ref, p.span+playEndsWithin)
	}
	// the job ends before a minute has lifted a fence
	return l.finish(ref, p.span+playEndsWithin, p.replaceable()...)
}

// replaceable are the nodes whose ranks a spare may have taken over meanwhile.
func (p nodePause) replaceable() (out []falcon.Node) {
	for _, n := range p.nodes {
		out = append(out, falcon.Node(n))
	}
	return out
}

// recoveryReaches kills a rank and returns when its recovery is seen in a step, or beyond it:
// some take less time than a question.
func (p *livePlay) recoveryReaches(step falcon.RecoveryState) error {
	const most = 20 * time.Second
	if err := p.ask("kill", "rank 0", 0); err != nil {
		return err
	}
	order := map[falcon.RecoveryState]int{}
	for i, s := range pauseSteps {
		order[s] = i
	}
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if order[falcon.RecoveryState(p.newest().GetState())] >= order[step] {
			return nil
		}
	}
	return fmt.Errorf("no recovery came to %s within %s; %s", step, most, p.standing())
}
