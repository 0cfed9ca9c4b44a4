package standstill

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// scene is a job of four ranks on two nodes, with a communicator of all ("world"), one
// of ranks 0 and 1 and one of ranks 2 and 3 ("tp"), and one of ranks 0 and 2 and one of
// ranks 1 and 3 ("pp"). Script lines are:
//
//	0: w8 w8 t9 >2 <2     rank 0's calls: an all-reduce of 8 on world, one of 9 on tp, a send to 2, a receive of 2
//	1: … own|busy|frozen|inside w   what its hook says; a call within NCCL
//	2: gone | silent      it has no process; its agent does not answer
//	(>1 <1) are a group, x8 an all-gather of 8, b8 a broadcast of 8 on world
type scene struct {
	job    Job
	nodes  map[falcon.Node]*Answer
	silent map[falcon.Node]bool
}

func groupOf(letter string, r falcon.Rank) int {
	switch letter {
	case "t":
		return 1 + int(r)/2
	case ">", "<":
		return 3 + int(r)%2
	}
	return 0
}

func newScene(script string) *scene {
	s := &scene{nodes: map[falcon.Node]*Answer{}, silent: map[falcon.Node]bool{}}
	for g, places := range [][]falcon.Rank{{0, 1, 2, 3}, {0, 1}, {2, 3}, {0, 2}, {1, 3}} {
		name := []string{"world", "tp", "tp", "pp", "pp"}[g]
		s.job.Groups = append(s.job.Groups, Group{
			ID:     uint64(g) + 1,
			Name:   name,
			Kind:   name,
			Places: places,
		})
	}
	for r := range falcon.Rank(4) {
		node := falcon.Node(fmt.Sprint("n", r/2))
		s.job.Seats = append(s.job.Seats, Seat{
			Node:   node,
			Device: falcon.NewDevice(node, int(r)%2),
			Pid:    100 + int(r),
			Alive:  true,
		})
		if s.nodes[node] == nil {
			s.nodes[node] = &Answer{Ask: 1, Node: node}
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
		r, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.Atoi(r)
		s.rank(falcon.Rank(n), strings.Fields(rest))
	}
	return s
}

// rank reads what one rank does.
func (s *scene) rank(r falcon.Rank, words []string) {
	node := s.job.Seats[r].Node
	c := Calls{Sign: Sign{
		Rank:         r,
		Pid:          100 + int(r),
		WaitingKnown: true,
		WaitingMs:    4000,
	}}
	numbers := map[string]uint64{}
	open := uint32(0)
	for g := range s.job.Groups {
		c.Comms = append(c.Comms, CommCalls{
			Comm:  uint64(g) + 1,
			Known: true,
			Pairs: g > 2,
		})
	}
	for i, w := range words {
		switch w {
		case "own":
			c.WaitingMs = 0
			continue
		case "busy":
			continue
		case "frozen":
			c.HookAgeMs = 9000
			continue
		case "gone":
			s.job.Seats[r].Alive = false
			return
		case "silent":
			s.silent[node] = true
			return
		case "gaps":
			c.Comms[0].Known = false
			continue
		case "idle-gaps": // in a communicator that no rank uses
			c.Comms[1+int(r)/2].Known = false
			continue
		case "inside":
			c.Comms[groupOf(words[i+1], r)].Inside = 1
		}
		if w == "inside" {
			break
		}
		if strings.HasPrefix(w, "(") {
			open = uint32(i + 1)
		}
		k := s.call(r, strings.Trim(w, "()"), numbers)
		k.Group = open
		k.Stream = uint32(k.Comm)
		if strings.HasSuffix(w, ")") {
			open = 0
		}
		if k.Op < falcon.OpSend {
			c.Comms[k.Comm].Collectives = k.Number
		}
		c.Calls = append(c.Calls, k)
	}
	c.Sign.Calls = uint64(len(c.Calls))
	s.nodes[node].Ranks = append(s.nodes[node].Ranks, c)
}

// call reads one call.
func (s *scene) call(r falcon.Rank, w string, numbers map[string]uint64) Call {
	g := groupOf(w[:1], r)
	k := Call{
		Comm:  g,
		Op:    falcon.OpAllReduce,
		Dtype: 7,
		Peer:  -1,
	}
	n, _ := strconv.Atoi(w[1:])
	key := fmt.Sprint(g)
	switch w[0] {
	case '>', '<':
		k.Op = falcon.OpSend
		k.Count = 1
		if w[0] == '<' {
			k.Op = falcon.OpRecv
		}
		key = w
		k.Peer = slices.Index(s.job.Groups[g].Places, falcon.Rank(n))
	case 'x':
		k.Op = falcon.OpAllGather
		k.Count = uint64(n)
	case 'b':
		k.Op = falcon.OpBroadcast
		k.Count = uint64(n)
	default:
		k.Count = uint64(n)
	}
	numbers[key]++
	k.Number = numbers[key]
	return k
}

// at is a moment of the script, in seconds.
func at(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second)))
}

// standing is a machine that knows the job's pace and has seen its last call at 0 s.
func standing(s *scene) *Machine {
	m := New(Config{}, 0)
	m.Step(at(-1), Pace{Known: true})
	for _, a := range s.nodes {
		for _, c := range a.Ranks {
			m.Step(at(0), c.Sign)
		}
	}
	return m
}

// judged plays the standstill until the answers are judged, and returns when.
func (s *scene) judged(m *Machine) (h *falcon.Hang, seconds float64) {
	for t := 0.0; t < 20; t += 0.1 {
		m.Tick(at(t))
		r := m.Ready()
		if r.Changed {
			return r.Hang, t
		}
		if r.Ask != 0 {
			m.Step(at(t), s.job)
			m.Advance(at(t))
			for n, a := range s.nodes {
				if !s.silent[n] {
					m.Step(at(t), Answer{Ask: r.Ask, Node: n, Ranks: a.Ranks})
				}
			}
		}
	}
	return nil, 0
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		ranks  []falcon.Rank // named
		kind   string
		says   []string // in the first culprit's, candidate's or doubt's words
	}{
		"one never comes": {
			"0: w8 w8\n1: w8 w8\n2: w8 own\n3: w8 w8",
			[]falcon.Rank{2},
			"missed_call",
			[]string{
				"Rank 2 (n1.g0, process 102) has not called collective 2, allreduce of 8 float32, of communicator world (ranks 0-3), in which ranks 0-1, 3 wait; last call there: 1; it is in the program's own code",
				"On n1: py-spy dump --pid 102",
			},
		},
		"it is stopped": {
			"0: w8 w8\n1: w8 w8\n2: w8 frozen\n3: w8 w8",
			[]falcon.Rank{2},
			"missed_call",
			[]string{"its process is stopped", "/proc/102/status"},
		},
		"stopped within it": {
			"0: w8 w8\n1: w8 w8\n2: w8 w8 frozen\n3: w8 w8",
			[]falcon.Rank{2},
			"device_stopped",
			[]string{"its process is stopped", "while ranks 0-1, 3 wait in collective 2", "/proc/102/status"},
		},
		"its device hangs": {
			"0: w8 w8\n1: w8 w8\n2: w8 busy\n3: w8 w8",
			[]falcon.Rank{2},
			"device_stopped",
			[]string{"Check the kernel log of n1 for an Xid"},
		},
		"through a neighbour": {
			"0: t9 w8\n1: t9 w8\n2: t9 own\n3: t9 t9",
			[]falcon.Rank{2},
			"missed_call",
			nil,
		},
		"a receive": {"0: own\n1: <3\n2: <0\n3: t9 >1", []falcon.Rank{0}, "missed_call", nil},
		"another size": {
			"0: w8 w8\n1: w8 w8\n2: w8 w9\n3: w8 w8",
			[]falcon.Rank{2},
			"mismatch",
			[]string{"called here: allreduce of 9 float32; by the others: allreduce of 8 float32 by 3"},
		},
		"another operation": {
			"0: w8 w8\n1: w8 w8\n2: w8 x8\n3: w8 w8",
			[]falcon.Rank{2},
			"mismatch",
			[]string{"called here: allgather of 8 float32"},
		},
		"two against two": {
			"0: w8\n1: w8\n2: w9\n3: w9",
			nil,
			"mismatch",
			[]string{"without a majority"},
		},
		"none finishes": {
			"0: w8\n1: w8\n2: w8\n3: w8",
			nil,
			"none_finished",
			[]string{"all members are in collective 1"},
		},
		"no process": {
			"0: w8\n1: w8\n2: gone\n3: w8",
			nil,
			"no_record",
			[]string{"it has no process"},
		},
		"no answer": {
			"0: w8 w8\n1: w8 w8\n2: silent\n3: silent",
			nil,
			"no_record",
			[]string{"its calls are not known", "The agents of n1 did not answer"},
		},
		"records with gaps": {
			"0: w8 w8\n1: w8 w8\n2: w8 gaps own\n3: w8 w8",
			nil,
			"missed_call",
			[]string{"The records of these ranks have gaps"},
		},
		"gaps elsewhere": {
			"0: w8 w8\n1: w8 w8\n2: w8 idle-gaps own\n3: w8 w8",
			[]falcon.Rank{2},
			"missed_call",
			nil,
		},
		"most are elsewhere": {
			"0: w8 w8\n1: w8 own\n2: w8 own\n3: w8 own",
			nil,
			"missed_call",
			[]string{"More than half of the ranks"},
		},
		"within NCCL": {
			"0: w8 inside w\n1: w8 inside w\n2: w8 own\n3: w8 w8",
			[]falcon.Rank{2},
			"missed_call",
			[]string{"has not called collective 2"},
		},
		"a group of a pair": {
			"0: (>2 <2)\n1: (>3 <3) w8\n2: own\n3: (>1 <1) w8",
			[]falcon.Rank{2},
			"missed_call",
			nil,
		},
	} {
		s := newScene(c.script)
		h, when := s.judged(standing(s))
		if h == nil {
			t.Errorf("%s: no verdict", name)
			continue
		}
		kind := ""
		text := fmt.Sprint(h.Doubts)
		for _, p := range slices.Concat(h.Candidates, h.Culprits) {
			kind = p.Kind
			text = text + "\n" + p.Text + "\n" + p.Advice
		}
		got := h.Named()
		if !slices.Equal(got, c.ranks) || kind != c.kind || when > 8.5 {
			t.Errorf("%s: %v, %s after %.1f s:\n%s", name, got, kind, when, text)
		}
		for _, say := range c.says {
			if !strings.Contains(text, say) {
				t.Errorf("%s: does not say %q:\n%s", name, say, text)
			}
		}
	}
}
