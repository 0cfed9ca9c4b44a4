package outbox

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var t0 = time.Unix(1000, 0)

func emptyCommand(falcon.Node) *falconv1.Command {
	return &falconv1.Command{}
}

func messagesText(list []Message) string {
	if len(list) == 0 {
		return "nothing\n"
	}
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s: command %d, life %d ms\n",
			m.Node, m.Command.GetId(), m.Command.GetLifeMs())
	}
	return b.String()
}

// Each testdata/*.txt is a sequence of calls, and below each what is sent. Run with
// -rewrite to write the answers again, and read them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{t: t, now: t0, held: map[uint64]bool{}}
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				return s.do(d)
			})
		})
	}
}

type script struct {
	t       *testing.T
	box     Box
	now     time.Time
	version uint64
	held    map[uint64]bool // by first id; the owner lets none of them go out
}

func (s *script) do(d *datadriven.TestData) string {
	number := func(key string) (n uint64) {
		if d.HasArg(key) {
			d.ScanArgs(s.t, key, &n)
		}
		return n
	}
	var nodes []falcon.Node
	for _, a := range d.CmdArgs {
		if a.Key == "nodes" {
			for _, v := range a.Vals {
				nodes = append(nodes, falcon.Node(v))
			}
		}
	}
	switch d.Cmd {
	case "put":
		it := Item{
			Class:  Class(number("class")),
			ID:     number("id"),
			Life:   time.Duration(number("life")) * time.Second,
			Batch:  int(number("batch")),
			Renew:  d.HasArg("renew"),
			Repeat: d.HasArg("repeat"),
			Body:   emptyCommand,
		}
		if n := number("deadline"); n > 0 {
			it.Deadline = s.now.Add(time.Duration(n) * time.Second)
		}
		for i, n := range nodes {
			it.To = append(it.To, To{n, number("id") + uint64(i)})
		}
		s.box.Put(it)
		return "nothing\n"
	case "wait":
		s.now = s.now.Add(time.Duration(number("seconds")) * time.Second)
		return "nothing\n"
	case "hold":
		s.held[number("id")] = !d.HasArg("over")
		return "nothing\n"
	case "remove":
		s.box.Remove(func(it *Item) bool { return it.ID == number("id") })
		return "nothing\n"
	case "send":
		if it := s.box.Find(nodes[0], number("id")); len(it.To) == 0 {
			return messagesText(it.Send(s.now, nodes))
		}
		return messagesText(s.box.Find(nodes[0], number("id")).SendAll(s.now))
	case "connect":
		return messagesText(s.box.Again(s.now, nodes[0], func(it *Item) bool {
			return !s.held[it.ID]
		}))
	case "tick":
		return messagesText(s.box.NextBatch(s.now))
	case "answer":
		it := s.box.Find(nodes[0], number("id"))
		if it == nil {
			return "unknown\n"
		}
		it.Close(nodes[0])
		return fmt.Sprintf("command %d is answered by %s\n", it.ID, nodes[0])
	case "in-flight":
		s.version++ // of other nodes
		return fmt.Sprintln(s.box.InFlight(s.now, Class(number(
			"class",
		)), s.version, func() []falcon.Node { return nodes }))
	}
	s.t.Fatalf("%s: no such command", d.Cmd)
	return ""
}

// Commands carry what is left of their lives, and say when nothing is.
func TestCommandsCarryTheirLives(t *testing.T) {
	for deadline, want := range map[time.Time]int64{
		t0.Add(90 * time.Second): 90_000,
		t0:                       lifeOver,
		t0.Add(-time.Hour):       lifeOver,
	} {
		c := WithLife(&falconv1.Command{DeadlineUnixNs: deadline.UnixNano()}, t0)
		if got := c.GetLifeMs(); got != want {
			t.Errorf("%v from its deadline it lives %d ms, wants %d", deadline.Sub(t0), got, want)
		}
	}
	if c := WithLife(&falconv1.Command{}, t0); c.GetLifeMs() != 0 {
		t.Errorf("a command without a deadline lives %d ms", c.GetLifeMs())
	}
}

// reference is a second implementation: one entry for each node of each command,
// and every question answered by looking at all of them.
type reference struct {
	next    int
	entries []entry
}

type entry struct {
	class, put    int
	first, id     uint64
	node          falcon.Node // "" = any
	answered      map[falcon.Node]bool
	repeat, renew bool
	life          time.Duration
	batch, index  int
	batches       *int // begun, of the whole command
	deadline      *time.Time
	sent          *bool
}

func (r *reference) put(it Item) {
	r.remove(cmp.Or(it.ID, firstID(it)))
	r.next++
	to := it.To
	if len(to) == 0 {
		to = []To{{"", it.ID}}
	}
	batches := 0
	deadline := it.Deadline
	sent := false
	for i, x := range to {
		r.entries = append(r.entries, entry{
			int(it.Class),
			r.next,
			to[0].ID,
			x.ID,
			x.Node,
			map[falcon.Node]bool{},
			it.Repeat,
			it.Renew,
			it.Life,
			it.Batch,
			i,
			&batches,
			&deadline,
			&sent,
		})
	}
	slices.SortStableFunc(r.entries, func(a, b entry) int {
		return cmp.Or(a.class-b.class, a.put-b.put, a.index-b.index)
	})
}

func firstID(it Item) uint64 {
	if len(it.To) > 0 {
		return it.To[0].ID
	}
	return it.ID
}

func (r *reference) remove(first uint64) {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.first == first })
}

// send writes what goes out as messagesText does.
func (r *reference) send(now time.Time, e entry, node falcon.Node) string {
	fresh := now.Add(e.life)
	if e.life > 0 && (e.renew || !*e.sent) && fresh.After(*e.deadline) {
		*e.deadline = fresh
	}
	*e.sent = true
	life := e.deadline.Sub(now).Milliseconds()
	if e.deadline.IsZero() {
		life = 0
	} else if life <= 0 {
		life = -1
	}
	return fmt.Sprintf("%s: command %d, life %d ms\n", node, e.id, life)
}

func (r *reference) again(now time.Time, node falcon.Node) string {
	out := ""
	for _, e := range r.entries {
		if (e.node == "" || e.node == node) && (e.repeat || !e.answered[node]) {
			out += r.send(now, e, node)
		}
	}
	return cmp.Or(out, "nothing\n")
}

func (r *reference) all(now time.Time, first uint64, nodes []falcon.Node) string {
	out := ""
	for _, e := range r.entries {
		switch {
		case e.first != first:
		case e.node != "":
			out += r.send(now, e, e.node)
		default:
			for _, n := range nodes {
				out += r.send(now, e, n)
			}
		}
	}
	return cmp.Or(out, "nothing\n")
}

func (r *reference) nextBatch(now time.Time) string {
	out := ""
	begun := map[uint64]int{}
	for _, e := range r.entries {
		begun[e.first] = *e.batches
	}
	for _, e := range r.entries {
		if from := begun[e.first]; e.index >= from && e.index < from+e.batch {
			*e.batches = e.index + 1
			if e.repeat || !e.answered[e.node] {
				out += r.send(now, e, e.node)
			}
		}
	}
	return cmp.Or(out, "nothing\n")
}

func (r *reference) find(node falcon.Node, id uint64) []entry {
	return slices.DeleteFunc(slices.Clone(r.entries), func(e entry) bool {
		return e.id != id || e.node != "" && e.node != node
	})
}

func (r *reference) inFlight(now time.Time, class int, nodes []falcon.Node) bool {
	for _, n := range nodes {
		for _, e := range r.entries {
			if e.class == class &&
				*e.sent &&
				now.Before(*e.deadline) &&
				(e.node == "" || e.node == n) &&
				!e.answered[n] {
				return true
			}
		}
	}
	return false
}

// The box and the reference agree after every call, whatever the sequence.
func TestBoxAgainstReference(t *testing.T) {
	all := []falcon.Node{"n0", "n1", "n2", "n3"}
	rapid.Check(t, func(t *rapid.T) {
		var box Box
		var ref reference
		now := t0
		nextID := uint64(1)
		nodes := all[:2]
		version := uint64(1)
		var firsts []uint64
		node := rapid.SampledFrom(all)
		agree := func(what, got, want string) {
			if got != want {
				t.Fatalf("%s: sent\n%sthe reference sends\n%s", what, got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				it := Item{
					Class:    Class(rapid.IntRange(0, 3).Draw(t, "class")),
					Life:     time.Duration(rapid.IntRange(0, 3).Draw(t, "life")) * time.Second,
					Renew:    rapid.Bool().Draw(t, "renew"),
					Repeat:   rapid.Bool().Draw(t, "repeat"),
					Body:     emptyCommand,
					Deadline: now.Add(time.Duration(rapid.IntRange(-1, 4).Draw(t, "deadline")) * time.Second),
				}
				first := nextID
				if len(firsts) > 0 && rapid.IntRange(0, 4).Draw(t, "given before") == 0 {
					first = rapid.SampledFrom(firsts).Draw(t, "first")
				} else {
					firsts = append(firsts, first)
					nextID += uint64(len(all))
				}
				if it.ID = first; it.Life == 0 && rapid.Bool().Draw(t, "no deadline") {
					it.Deadline = time.Time{}
				}
				for i, n := range rapid.SliceOfNDistinct(
					node,
					0,
					len(all),
					rapid.ID[falcon.Node],
				).Draw(t, "nodes") {
					it.To = append(it.To, To{n, first + uint64(i)})
				}
				if len(it.To) > 0 {
					it.Batch = rapid.IntRange(0, 2).Draw(t, "batch")
				}
				box.Put(it)
				ref.put(it)
			},
			"send": func(t *rapid.T) {
				first := rapid.Uint64Range(1, nextID).Draw(t, "first")
				for c := range Class(4) {
					for _, it := range box.Items(c) {
						if it.ID != first {
							continue
						}
						got := it.SendAll(now)
						if len(it.To) == 0 {
							got = it.Send(now, all[:2])
						}
						agree("send", messagesText(got), ref.all(now, first, all[:2]))
					}
				}
			},
			"connect": func(t *rapid.T) {
				n := node.Draw(t, "node")
				agree(
					"connect "+string(n),
					messagesText(box.Again(now, n, func(*Item) bool { return true })),
					ref.again(now, n),
				)
			},
			"tick": func(*rapid.T) {
				agree("tick", messagesText(box.NextBatch(now)), ref.nextBatch(now))
			},
			"answer": func(t *rapid.T) {
				n := node.Draw(t, "node")
				id := rapid.Uint64Range(1, nextID).Draw(t, "id")
				it := box.Find(n, id)
				want := ref.find(n, id)
				if (it != nil) != (len(want) > 0) {
					t.Fatalf("command %d of %s: known %v, to the reference %v",
						id, n, it != nil, len(want) > 0)
				}
				for _, e := range want {
					it.Close(n)
					e.answered[n] = true
				}
			},
			"remove": func(t *rapid.T) {
				first := rapid.Uint64Range(1, nextID).Draw(t, "first")
				box.Remove(func(it *Item) bool { return it.ID == first })
				ref.remove(first)
			},
			"others": func(t *rapid.T) {
				nodes = rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID).Draw(t, "nodes")
				version = version + 1
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				for c := range Class(4) {
					got := box.InFlight(now, c, version, func() []falcon.Node { return nodes })
					want := ref.inFlight(now, int(c), nodes)
					if got != want {
						t.Fatalf("class %d: in flight %v, by the reference %v", c, got, want)
					}
				}
			},
		})
	})
}

// Of a class only the newest commands are remembered.
func TestTrim(t *testing.T) {
	var box Box
	for id := range uint64(5) {
		box.Put(Item{Class: Class(id % 2), ID: id + 1, Body: emptyCommand})
	}
	box.Trim(0, 1)
	got := box.Items(0)
	if len(got) != 1 ||
		got[0].ID != 5 ||
		len(box.Items(1)) != 2 ||
		box.Find("n", 1) != nil {
		t.Errorf("%d of class 0 are left, %d of class 1", len(got), len(box.Items(1)))
	}
}
