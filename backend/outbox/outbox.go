// Package outbox holds the commands that are on their way to nodes: what was
// ordered, who has not answered, until when it is valid, and what a node is sent
// again.
//
// It guarantees that a command keeps its ids however often it is sent, that a node
// whose answer is final is not sent the command again unless its owner wants it
// repeated, and that commands go out by class and then in the order in which they
// were put in. The box is a value over records that its owner keeps: after a
// restart the owner puts in what its records hold. Time is an argument; there is
// no I/O and no goroutine.
//
// It must not decide whether a command may go out, and must not judge answers: a
// command must be put in only when it is durable, and only its owner removes it.
package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Class orders commands: lower ones are sent first. The highest number is none.
type Class uint8

// To is the command that one node gets.
type To struct {
	Node falcon.Node
	ID   uint64
}

// Item is one command to one node or to many. The fields are its owner's to set
// before Put, and must not be changed after it.
type Item struct {
	Class    Class
	ID       uint64 // without To: of the one command that all nodes get
	To       []To
	Body     func(falcon.Node) *falconv1.Command // new for each call; id, deadline and life are filled in
	Deadline time.Time
	Life     time.Duration // the deadline is at least this long after the first sending
	Renew    bool          // after every sending
	Repeat   bool          // sent again until it is removed, whatever nodes answer
	Batch    int           // nodes that NextBatch sends it to at a time, 0 = none
	About    any           // the owner's own

	sent     bool
	answered map[falcon.Node]bool
	ids      map[falcon.Node]uint64
	begun    int // of To, by batches

	// What InFlight found last: the first of a version of its nodes that had not answered.
	looked uint64
	first  int
}

// Message is a command for one node.
type Message struct {
	Node    falcon.Node
	Command *falconv1.Command
}

// Box holds the commands. The zero Box is empty.
type Box struct {
	items []*Item // by class, then in the order of Put
	byID  map[uint64]*Item
}

// Put takes a command in and returns it as the box holds it, not sent and without
// answers. It replaces one with the same first id.
func (b *Box) Put(v Item) *Item {
	it := &v
	it.sent = false
	it.begun = 0
	it.looked = 0
	it.answered = map[falcon.Node]bool{}
	it.ids = make(map[falcon.Node]uint64, len(it.To))
	if len(it.To) > 0 {
		it.ID = it.To[0].ID
	}
	if old := b.byID[it.ID]; old != nil && old.ID == it.ID {
		b.Remove(func(o *Item) bool { return o == old })
	}
	if b.byID == nil {
		b.byID = map[uint64]*Item{}
	}
	b.byID[it.ID] = it
	for _, to := range it.To {
		it.ids[to.Node], b.byID[to.ID] = to.ID, it
	}
	b.items = slices.Insert(b.items, b.begin(it.Class+1), it)
	return it
}

// Remove takes commands out: they are not sent again, and answers to them are
// unknown.
func (b *Box) Remove(over func(*Item) bool) {
	b.items = slices.DeleteFunc(b.items, func(it *Item) bool {
		if !over(it) {
			return false
		}
		delete(b.byID, it.ID)
		for _, to := range it.To {
			delete(b.byID, to.ID)
		}
		return true
	})
}

// Trim removes the oldest commands of a class but for the newest most.
func (b *Box) Trim(c Class, most int) {
	extra := len(b.Items(c)) - most
	b.Remove(func(it *Item) bool {
		if it.Class != c || extra <= 0 {
			return false
		}
		extra--
		return true
	})
}

// begin is the index of the first command of a class or of a later one.
func (b *Box) begin(c Class) int {
	i, _ := slices.BinarySearchFunc(b.items, c, func(it *Item, c Class) int {
		return cmp.Compare(it.Class, c)
	})
	return i
}

// Items are the commands of a class. The list is the caller's.
func (b *Box) Items(c Class) []*Item {
	return slices.Clone(b.items[b.begin(c):b.begin(c+1)])
}

// Find is the command that a node answers with an id; nil where the node was not
// sent it.
func (b *Box) Find(node falcon.Node, id uint64) *Item {
	it := b.byID[id]
	if it == nil || len(it.To) > 0 && it.ids[node] != id {
		return nil
	}
	return it
}

// Send sends a command to nodes.
func (it *Item) Send(now time.Time, nodes []falcon.Node) []Message {
	fresh := now.Add(it.Life)
	if (it.Renew || !it.sent) && it.Life > 0 && it.Deadline.Before(fresh) {
		it.Deadline = fresh
	}
	it.sent = true
	out := make([]Message, 0, len(nodes))
	for _, n := range nodes {
		c := it.Body(n)
		if c.Id = it.idOf(n); !it.Deadline.IsZero() {
			c.DeadlineUnixNs = it.Deadline.UnixNano()
		}
		out = append(out, Message{n, WithLife(c, now)})
	}
	return out
}

// SendAll sends a command to all of To.
func (it *Item) SendAll(now time.Time) []Message {
	return it.Send(now, it.nodes(0, len(it.To)))
}

func (it *Item) nodes(from, to int) []falcon.Node {
	out := make([]falcon.Node, 0, to-from)
	for _, x := range it.To[from:to] {
		out = append(out, x.Node)
	}
	return out
}

func (it *Item) idOf(n falcon.Node) uint64 {
	if len(it.To) == 0 {
		return it.ID
	}
	return it.ids[n]
}

// lifeOver is life_ms of a command whose deadline has passed.
const lifeOver = -1

// WithLife gives a command the rest of its life as it is sent: agents count it
// from its receipt, whatever their clocks show. Without a deadline it has none.
func WithLife(c *falconv1.Command, now time.Time) *falconv1.Command {
	if c.DeadlineUnixNs != 0 {
		life := time.Unix(0, c.DeadlineUnixNs).Sub(now).Milliseconds()
		if c.LifeMs = life; life <= 0 {
			c.LifeMs = lifeOver
		}
	}
	return c
}

// Again is what a node that has connected again is sent: the commands for it
// without its final answer, as far as may allows.
func (b *Box) Again(now time.Time, node falcon.Node, may func(*Item) bool) []Message {
	var out []Message
	for _, it := range b.items {
		if it.awaits(node) && may(it) {
			out = append(out, it.Send(now, []falcon.Node{node})...)
		}
	}
	return out
}

func (it *Item) awaits(node falcon.Node) bool {
	return it.Repeat && it.isFor(node) || it.unanswered(node)
}

func (it *Item) unanswered(node falcon.Node) bool {
	return it.isFor(node) && !it.answered[node]
}

func (it *Item) isFor(node falcon.Node) bool {
	_, is := it.ids[node]
	return is || len(it.To) == 0
}

// NextBatch sends commands with a Batch to their next nodes, but for those that
// have answered.
func (b *Box) NextBatch(now time.Time) []Message {
	var out []Message
	for _, it := range b.items {
		next := min(it.begun+it.Batch, len(it.To))
		nodes := slices.DeleteFunc(it.nodes(it.begun, next), func(n falcon.Node) bool {
			return !it.awaits(n)
		})
		if it.begun = next; len(nodes) > 0 {
			out = append(out, it.Send(now, nodes)...)
		}
	}
	return out
}

// InFlight reports whether a command of a class was sent, is still valid, and one
// of nodes has not answered it. The nodes have another version whenever they are others:
// it is asked often, and those that have answered are not looked at again.
func (b *Box) InFlight(now time.Time, c Class, version uint64, nodes func() []falcon.Node) bool {
	return slices.ContainsFunc(b.items[b.begin(c):b.begin(c+1)], func(it *Item) bool {
		return it.sent && !it.Expired(now) && it.someUnanswered(version, nodes())
	})
}

func (it *Item) someUnanswered(version uint64, nodes []falcon.Node) bool {
	if it.looked != version {
		it.looked, it.first = version, 0
	}
	for ; it.first < len(nodes); it.first++ {
		if it.unanswered(nodes[it.first]) {
			return true
		}
	}
	return false
}

// Sent reports whether a command has gone out.
func (it *Item) Sent() bool { return it.sent }

// Hold has a command wait to be sent again, to all its nodes and with a new life.
func (it *Item) Hold() {
	it.sent = false
}

// Close notes a node's final answer.
func (it *Item) Close(node falcon.Node) {
	it.answered[node] = true
}

// Answered reports whether a node's answer is final.
func (it *Item) Answered(node falcon.Node) bool { return it.answered[node] }

// Expire ends a command's validity.
func (it *Item) Expire(now time.Time) {
	it.Deadline = now
}

// Expired reports whether a command's deadline has passed.
func (it *Item) Expired(now time.Time) bool {
	return !now.Before(it.Deadline)
}
