// Package column says what the name of a column, a tag or a key of a training
// log means: a time of an iteration and its unit, a clock, a rate, a step, or
// something that is no time.
//
// It guarantees that a name alone decides: the same name always means the same.
// It must not look at values, and it never turns a name that says nothing into a
// time: such a name is Other, and whoever reads the file asks.
package column

import (
	"slices"
	"strings"
)

// Role is what a column holds.
type Role uint8

// Roles, the ones that can give iteration times first.
const (
	Other    Role = iota // the name says nothing
	IterTime             // the time of one iteration
	Mean                 // a mean of such times
	Time                 // a duration, of what is not said
	Rate                 // iterations per second
	Items                // tokens or samples per second
	Clock                // when the row was written
	Elapsed              // time since the start
	Step                 // the number of the iteration
	Rank                 // who wrote the row
	Part                 // the time of a part of an iteration, of an evaluation or of an epoch
	Known                // no time: loss, learning rate, memory and the like
)

// Meaning is what a name says.
type Meaning struct {
	Role Role
	Unit Unit // "" where the name does not say
}

// Words of names, in lower case.
var (
	iterations = set("iter iters iteration iterations it step steps timestep timesteps batch minibatch")
	durations  = set("time times timing timings duration durations elapsed latency dur took")
	means      = set("avg average mean running rolling ema smoothed smooth")
	statistics = set(`min max p1 p5 p10 p25 p50 p75 p90 p95 p99 median std stddev var sum cum cv
		ratio pct percent percentage frac fraction share speedup slowdown delta diff change limit
		target expected baseline ideal budget estimated predicted`)
	parts = set(`data forward fwd backward bwd optimizer opt comm communication allreduce allgather reduce
		loader dataloader loading load gen generation rollout inference ref io save saving checkpoint ckpt wait waiting
		idle h2d d2h sync kernel compute computation update reward adv actor critic epoch warmup init eval evaluation
		val valid validation test compile fetch first last eta remaining`)
	clocks  = set("timestamp timestamps ts datetime date walltime asctime")
	elapses = set("runtime elapsed elapsedtime uptime cumulative")
	ranks   = set("rank ranks worker workers proc process host hostname node")
	numbers = set("global train trainer training current cur number no idx index id n num count _")
	known   = set(
		`loss losses lr learning grad gradient norm epoch epochs acc accuracy tokens token samples sample mem memory gib mib gb
		mb mfu hfu tflops flops tflop ppl perplexity scale seed size util utilization power temp temperature score kl entropy
		bpb params param weights length len skipped nan zeros f1 precision recall bleu wer ratio clip total_weights flag`,
	)
	limits = set("max total skipped warmup nan per every last best save eval accumulation")
)

func set(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

// Read says what a name means.
func Read(name string) Meaning {
	words := splitWords(Short(name))
	if m, ok := readRatio(words); ok {
		return m
	}
	m := Meaning{Unit: unitOf(words)}
	has := func(of map[string]bool) bool {
		return slices.ContainsFunc(words, func(w string) bool { return of[w] })
	}
	timed := has(durations) || m.Unit != ""
	switch {
	case slices.Contains(words, "vs"): // another axis than the iteration's
		m.Role = Known
	case isStep(words):
		m.Role = Step
	case has(clocks) ||
		slices.Contains(words, "wall") && has(durations) ||
		slices.Contains(words, "unix"):
		m.Role = Clock
	case timed && has(parts):
		m.Role = Part
	case timed && has(iterations):
		m.Role = iterationTime(words)
	case has(elapses) ||
		timed && slices.Contains(words, "relative") ||
		timed && slices.Contains(words, "total"):
		m.Role = Elapsed
	case slices.Contains(words, "tps"):
		m.Role = Items
	case isRank(words):
		m.Role = Rank
	case has(known):
		m.Role = Known
	case timed && has(statistics):
		m.Role = Part
	case timed && plain(words):
		m.Role = Time
	}
	return m
}

// plain reports whether words name a duration and nothing else: a queue_time is
// the time of something that is not known here.
func plain(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		_, isUnit := units[w]
		return !isUnit && !durations[w] && !numbers[w] && w != "in"
	})
}

// iterationTime tells the time of each iteration from statistics of many.
func iterationTime(words []string) Role {
	for _, w := range words {
		if means[w] {
			return Mean
		}
		if statistics[w] {
			return Part
		}
	}
	return IterTime
}

// isStep reports whether words number iterations. A "time step" is a number, a
// "step time" is not.
func isStep(words []string) bool {
	found := false
	for i, w := range words {
		switch {
		case w == "time" &&
			i+1 < len(words) &&
			(words[i+1] == "step" || words[i+1] == "steps"):
			continue
		case limits[w] || durations[w]:
			return false
		case w == "batch" || w == "minibatch" || !iterations[w] && !numbers[w]:
			return false
		case iterations[w]:
			found = true
		}
	}
	return found
}

func isRank(words []string) bool {
	for _, w := range words {
		if !ranks[w] && !numbers[w] {
			return false
		}
	}
	return len(words) > 0 && slices.ContainsFunc(words, func(w string) bool { return ranks[w] })
}

// perItem are the words of what is counted per second and is no iteration.
var perItem = set(
	"token tokens tok toks sample samples seq seqs sequence sequences img images example examples throughput",
)

// readRatio reads names such as s/it, it/s, ms per step and tokens_per_sec: the
// splitter has made a slash between two such words, and "per", the word "per".
func readRatio(words []string) (Meaning, bool) {
	at := slices.Index(words, "per")
	if at <= 0 || at == len(words)-1 {
		return Meaning{Role: Items}, slices.Contains(words, "throughput") && !slices.Contains(words, "flop")
	}
	over := words[at-1]
	under := words[at+1]
	unit, isTime := units[over]
	under2, perTime := units[under]
	switch {
	case isTime && iterations[under]:
		if slices.Contains(words, "train") && slices.Contains(words, "speed") {
			return Meaning{Mean, unit}, true // ms-swift: elapsed time over all steps so far
		}
		return Meaning{iterationTime(words), unit}, true
	case perTime &&
		under2 == "s" &&
		slices.ContainsFunc(words, func(w string) bool { return parts[w] }):
		return Meaning{Role: Known}, true
	case perTime && under2 == "s" && iterations[over]:
		return Meaning{Role: Rate}, true
	case perTime && under2 == "s" && perItem[over] || slices.Contains(words, "throughput") && perItem[under]:
		return Meaning{Role: Items}, true
	case perTime:
		return Meaning{Role: Known}, true
	}
	return Meaning{}, false
}

// Short is a name without the run that W&B's exports put before it
// ("fast-sun-7 - train/step_time").
func Short(name string) string {
	if i := strings.LastIndex(name, " - "); i >= 0 {
		return name[i+3:]
	}
	return name
}

// Bound reports whether a name is one of W&B's bounds of another column.
func Bound(name string) bool {
	return strings.HasSuffix(name, "__MIN") || strings.HasSuffix(name, "__MAX")
}
