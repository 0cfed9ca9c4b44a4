package recovery

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
)

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
		s.policy = falcon.Policy{
			Mode:   falcon.Mode(w["mode"]),
			Frozen: w["frozen"] == "true",
			Recovery: falcon.RecoveryPolicy{
				Approval:    w["approval"],
				Countdown:   float64(s.num(w, "countdown", 0)),
				FenceAlone:  w["alone"] == "true",
				AllowShrink: w["shrink"] == "true",
				InPlace:     int(s.num(w, "in_place", 0)),
				PerHour:     int(s.num(w, "per_hour", 0)),
			},
		}
		return []Input{SetPolicy{s.policy}}
	case "up": // processes of ranks, all by default
		return s.up(w)
	case "burst": // words that the network held come at once
		var out []Input
		for range s.num(w, "words", 2) {
			s.iteration += 10
			out = append(out, s.beats(w)...)
		}
		return out
	case "exit":
		return s.exit(w)
	case "park":
		return s.park(w)
	case "suspended":
		return each(s.nodes(w), func(n falcon.Node) Input {
			return Suspended{
				Node:       n,
				Generation: uint64(s.num(w, "generation", int64(s.suspend))),
				Refused:    w["refused"],
			}
		})
	case "joined":
		return s.joined(w)
	case "launched":
		return []Input{Launched{
			Node:       falcon.Node(w["node"]),
			Generation: uint64(s.num(w, "generation", int64(s.launch.Generation))),
			Failed:     w["failed"],
			Unproven:   w["unproven"] != "",
		}}
	case "tabled":
		return each(s.nodes(w), func(n falcon.Node) Input {
			return Tabled{
				Node:       n,
				Generation: uint64(s.num(w, "generation", int64(s.generation()))),
				Failed:     w["failed"],
			}
		})
	case "rejoined":
		return s.rejoined(w)
	}
	return s.sign(verb, w)
}

func (s *script) sign(verb string, w words) []Input {
	switch verb {
	case "node":
		return []Input{Node{
			Node:  falcon.Node(w["node"]),
			Alive: w["alive"] == "true",
			How:   howOf(w),
		}}
	case "spoke":
		return []Input{MessageReceived{Node: falcon.Node(w["node"])}}
	case "late":
		return []Input{Late{}}
	case "standstill":
		return []Input{Standstill{Text: w["text"]}}
	case "device":
		d := Device{
			Device: falcon.Device(w["device"]),
			Fatal:  w["fatal"] == "true",
			Code:   int(s.num(w, "code", 0)),
			Text:   w["text"],
		}
		if d.Fatal {
			s.devices = append(s.devices, Seen{d, s.now.UnixNano()})
		}
		return []Input{d}
	case "pace":
		ms, _ := strconv.ParseFloat(w["ms"], 64)
		return []Input{Pace{
			Iteration: s.num(w, "i", s.iteration),
			Ms:        ms,
			Held:      w["held"] == "true",
		}}
	case "decide":
		hash := w["hash"]
		if hash == "seen" {
			c, _ := s.m.Recovery(w["id"])
			hash = c.PlanHash
		}
		return []Input{Decision{
			Recovery: w["id"],
			PlanHash: hash,
			Verb:     Verb(w["verb"]),
			By:       w["by"],
			From:     "unix:1000",
			Reason:   w["reason"],
		}}
	case "demand":
		d := Demand{
			Node:   falcon.Node(w["node"]),
			Rank:   -1,
			By:     w["by"],
			From:   "unix:1000",
			Reason: w["reason"],
		}
		if v, ok := w["rank"]; ok {
			d.Rank = s.rank(v)
		}
		return []Input{d}
	}
	s.t.Fatalf("no command %q", verb)
	return nil
}

func howOf(w words) How {
	switch {
	case w["reset"] == "true":
		return Reset
	case w["goodbye"] == "true":
		return Goodbye
	case w["closed"] == "true":
		return Closed
	}
	return TimedOut
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
		Epoch:      uint64(s.num(w, "epoch", int64(s.job.Epoch))),
		Generation: uint64(s.num(w, "generation", 0)),
		StateMB:    100,
		Layout: falcon.Layout{
			TP: int(s.num(w, "tp", 1)),
			DP: int(s.num(w, "dp", 2)),
			PP: int(s.num(w, "pp", 2)),
		},
		Parks:      w["adapter"] != "false",
		Checkpoint: s.num(w, "checkpoint", falcon.NoIteration),
		CanLaunch:  map[falcon.Node]bool{},
		Unbegun:    w["unbegun"] == "true",
		Unit:       int(s.num(w, "unit", 0)),
		ZeRO: falcon.ZeRO{
			Stage:     int(s.num(w, "zero", 0)),
			Instances: int(s.num(w, "instances", 0)),
		},
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
	for _, n := range list(w["away"]) {
		delete(j.CanLaunch, falcon.Node(n))
		if j.Away == nil {
			j.Away = map[falcon.Node]bool{}
		}
		j.Away[falcon.Node(n)] = true
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
		n := d.Node()
		if !slices.Contains(out, n) && !slices.Contains(c.Fenced, n) {
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
		_, ok := w["ranks"]
		if ok && !slices.Contains(s.ranks(w), falcon.Rank(r)) {
			continue
		}
		p := Process{
			Rank:       falcon.Rank(r),
			Node:       d.Node(),
			Pid:        100 + r,
			Generation: uint64(s.num(w, "generation", 0)),
			Alive:      true,
		}
		p.Ending.Raised = raisedOf(w["raised"]) // it has reported its error, and is about to end
		s.procs[p.Rank] = p
		b := Beat{
			Rank:      p.Rank,
			Pid:       p.Pid,
			Iteration: s.iteration,
			Tag:       s.iteration,
		}
		if w["iteration"] == "none" {
			b.Iteration, b.Tag = falcon.NoIteration, falcon.NoIteration
		}
		out = append(out, p, b)
	}
	for _, n := range s.nodes(words{}) {
		out = append(out, Node{Node: n, Alive: true})
	}
	return out
}

func (s *script) exit(w words) []Input {
	var out []Input
	for _, r := range s.ranks(w) {
		p, lived := s.procs[r]
		if !lived { // its end is the first that is heard of it
			p = Process{
				Rank: r,
				Node: s.job.Placement[r].Node(),
				Pid:  100 + int(r),
			}
		}
		if v, ok := w["generation"]; ok {
			p.Generation, _ = strconv.ParseUint(v, 10, 64)
		}
		p.Alive = false
		p.Park = nil
		p.Normal = w["normal"] == "true"
		p.Exit = w["how"]
		p.Finished = p.Normal && w["ordered"] != "true"
		p.Ending = endingOf(w["how"])
		p.Ending.Raised, p.Ending.Said = raisedOf(w["raised"]), w["said"]
		p.Ending.Raised.OfPeers = w["of_peers"] == "true"
		p.Rejoined, _ = strconv.ParseUint(w["rejoined"], 10, 64)
		if g, err := strconv.ParseUint(w["parked"], 10, 64); err == nil {
			p.Park = &Park{Generation: g, Tag: falcon.NoIteration} // its agent saw nothing newer
		}
		if w["generation"] == "" {
			s.procs[r] = p
		}
		out = append(out, p)
	}
	return out
}

// raisedOf is an error as "Kind at file:line: message".
func raisedOf(s string) (r falcon.Raised) {
	head, text, _ := strings.Cut(s, ": ")
	r.Kind, r.Where, _ = strings.Cut(head, " at ")
	r.Text = text
	return r
}

// endingOf is what "signal N" and "status N" tell of an end.
func endingOf(how string) falcon.Ending {
	kind, number, _ := strings.Cut(how, " ")
	n, err := strconv.Atoi(number)
	switch {
	case err == nil && kind == "signal":
		return falcon.Ending{Known: true, Signal: n}
	case err == nil && kind == "status":
		return falcon.Ending{Known: true, Status: n}
	}
	return falcon.Ending{}
}

// park has processes stand with step and the one before it.
func (s *script) park(w words) []Input {
	var out []Input
	c, _ := s.m.Current()
	for _, r := range s.ranks(w) {
		p, ok := s.procs[r]
		_, asked := w["ranks"]
		if !ok || !p.Alive || (!asked && slices.Contains(c.Fenced, p.Node)) {
			continue
		}
		if p.Park != nil && p.Park.Joining { // it holds nothing still
			p.Park = &Park{
				Generation: s.suspend,
				Joining:    true,
				Tag:        falcon.NoIteration,
				Hold:       p.Park.Hold,
			}
			s.procs[r] = p
			out = append(out, p)
			continue
		}
		step := s.num(w, "step", s.iteration)
		sum := s.job.Layout.Coord(r)
		shard := uint64(sum.TP + 10*sum.PP)
		p.Park = &Park{
			Generation: uint64(s.num(w, "generation", int64(s.suspend))),
			Tag:        s.num(w, "tag", step),
			Hold: falcon.RankHold{
				Steps: [2]int64{step, step - 1},
				Sums: [2]uint64{
					1000*uint64(step) + shard + uint64(s.num(w, "bad", 0)),
					1000*uint64(step-1) + shard,
				},
			},
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
		v, ok := w["ranks"]
		if ok && !slices.Contains(list(v), fmt.Sprint(int(r))) {
			continue
		}
		p := Process{
			Rank:       r,
			Node:       d.Node(),
			Pid:        int(1000*l.Generation) + int(r),
			Generation: l.Generation,
			Alive:      true,
			Park: &Park{
				Generation: l.Generation,
				Joining:    true,
				Tag:        falcon.NoIteration,
				Hold:       falcon.RankHold{Steps: [2]int64{-1, -1}},
			},
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
			Rank:       r,
			Generation: uint64(s.num(w, "generation", int64(s.rejoin.Generation))),
			Status:     int32(s.num(w, "status", 0)),
			Iteration:  s.num(w, "i", s.rejoin.Resume),
			GroupsMs:   30,
			RestoreMs:  50,
		}
	})
}
