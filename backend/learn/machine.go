package learn

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Default waits, from the first node that was heard.
const (
	Wait = 10 * time.Second // where nothing says that the journal is older than the nodes
	// where something does, for ranks that nobody has described, and where most nodes are not heard
	WaitStale = time.Minute
)

// Bounds of what nodes can claim: what is beyond them is not believed.
const (
	EpochMost  = 1 << 63
	NumberMost = 1 << 48 // generations and orders
)

// StartsKept is how many starts of engines a journal remembers: an older one that is not
// among them may be its own.
const StartsKept = 64

// Engine is one start of an engine.
type Engine struct {
	ID    string `json:"id"`
	Host  string `json:"host,omitempty"`
	Start uint64 `json:"start,omitempty"` // how often one was started on its journal, 1 = the first
	First uint64 `json:"first,omitempty"` // number of the record of this start, 0 = not known
}

// Seen is how far a node has seen an engine's journal.
type Seen struct {
	Engine Engine
	Record uint64 // the newest that the engine has named, 0 = none
}

// String names it for people: "4f0c on host a".
func (e Engine) String() string {
	switch {
	case e.ID == "":
		return "of an unknown name"
	case e.Host == "":
		return e.ID
	}
	return e.ID + " on host " + e.Host
}

// Numbers are the highest that were used, 0 = none.
type Numbers struct {
	Epoch      uint64
	Command    uint64 // id, of that epoch
	Generation uint64
	Order      uint64
}

// Report is what a node says of the engines before.
type Report struct {
	Numbers
	Seen        // of the engine that it follows; no id = it does not know
	Before Seen // of the one whose commands it has obeyed last; no id = it is the same
}

// Own is what the journal says.
type Own struct {
	Numbers          // Command: ids up to here are never given out again
	Record  uint64   // newest of the journal as it was found
	Engine  Engine   // this start
	Before  []Engine // earlier starts on this journal, oldest first; older ones than these are forgotten
	Nodes   []falcon.Node
	Empty   bool   // no job is described
	Rejoins uint64 // the newest generation that ranks may have rejoined
}

// Rank is a process that a node has described.
type Rank struct {
	Node       falcon.Node
	Process    string // its name; what is said of it later takes the place of what was said before
	Rank       falcon.Rank
	Device     falcon.Device
	World      int    // 0 = not known
	Generation uint64 // the highest that the process is of, or was ordered into
	Order      uint64 // the newest that it has agreed on
	Launch     uint64 // the generation of the launch that has started it, 0 = none has
	Rejoined   uint64 // the newest generation that it has rejoined
	Alive      bool
	Joins      bool // it waits to join others for the first time
	Untold     bool // its agent does not say which engine it follows
}

// Machine learns, and watches for other engines afterwards.
type Machine struct {
	own    Own
	began  time.Time // the first node was heard; zero = none was
	over   bool
	forced bool // a person has agreed

	announced map[falcon.Node]bool // that have said all they know
	claims    claims
	worlds    map[int]int // ranks that claim each size
	learnt    Numbers
	present   Numbers // of nodes that follow this epoch or a later one: generation and order
	foreign   Engine  // that somebody follows, and that this journal does not know
	missing   Sign    // a record that was seen, and that this journal does not have; zero = none
	rivals    map[falcon.Node]rivalry
	raised    time.Time // when the engine last went above one; zero = never
}

// New begins to learn.
func New(own Own) *Machine {
	return &Machine{
		own:       own,
		announced: map[falcon.Node]bool{},
		claims:    newClaims(),
		worlds:    map[int]int{},
		rivals:    map[falcon.Node]rivalry{},
	}
}

// Attach takes what a node said when it opened its stream: which engine it followed until then.
func (m *Machine) Attach(now time.Time, n falcon.Node, r Report) {
	if m.began.IsZero() {
		m.began = now
	}
	m.announced[n] = false
	m.Report(r)
	if !m.over {
		return
	}
	if m.leads(r) {
		m.rivals[n] = rivalry{r, now}
	} else {
		delete(m.rivals, n)
	}
}

// Told notes that a node has said all it knows.
func (m *Machine) Told(n falcon.Node) {
	m.announced[n] = true
}

// Gone forgets a node whose stream has ended: what is to be known of it may change meanwhile.
func (m *Machine) Gone(n falcon.Node) {
	delete(m.announced, n)
}

// Report takes numbers that a node has reported, at any time.
func (m *Machine) Report(r Report) {
	raise := func(have *uint64, claim, most uint64) {
		if claim < most {
			*have = max(*have, claim)
		}
	}
	if r.Epoch > m.learnt.Epoch && r.Epoch < EpochMost {
		m.learnt.Epoch = r.Epoch
		m.learnt.Command = 0
	}
	if r.Epoch == m.learnt.Epoch {
		raise(&m.learnt.Command, r.Command, NumberMost<<8)
	}
	m.see(r.Epoch, r.Seen)
	m.see(r.Epoch, r.Before)
	raise(&m.learnt.Generation, r.Generation, NumberMost)
	raise(&m.learnt.Order, r.Order, NumberMost)
	if r.Epoch >= m.own.Epoch { // else the node was away since, and its numbers are of before
		raise(&m.present.Generation, r.Generation, NumberMost)
		raise(&m.present.Order, r.Order, NumberMost)
	}
}

// Rank takes a process.
func (m *Machine) Rank(r Rank) {
	n := Numbers{Generation: r.Generation, Order: r.Order}
	if r.Untold {
		n.Epoch = m.own.Epoch
	}
	m.Report(Report{Numbers: n})
	if r.Rank < 0 {
		return
	}
	known := m.claims.add(r)
	if r.World > 0 && !known {
		m.worlds[r.World]++
	}
}

// Agree ends the learning by a person's word.
func (m *Machine) Agree() {
	m.forced = true
}

// see takes how far a node has seen the journal of an engine of that epoch.
func (m *Machine) see(epoch uint64, s Seen) {
	if m.over || s.Engine.ID == m.own.Engine.ID {
		return
	}
	if m.isForeign(epoch, s.Engine) {
		m.foreign = s.Engine
	}
	if epoch != m.own.Epoch || s.Record >= NumberMost {
		return
	}
	last := m.lastOf(s.Engine.ID)
	if s.Record > last && s.Record-last > m.missing.Seen-m.missing.Has {
		m.missing = Sign{ByRecord, s.Record, last}
	}
}

// lastOf is the newest record that an engine can have written into this journal: the next one was
// started after it. Two histories of a journal have records of the same number, of different engines.
func (m *Machine) lastOf(engine string) uint64 {
	i := slices.IndexFunc(m.own.Before, func(b Engine) bool { return b.ID == engine })
	if i < 0 || i+1 == len(m.own.Before) || m.own.Before[i+1].First == 0 {
		return m.own.Record
	}
	return m.own.Before[i+1].First - 1
}

// isForeign reports whether an engine has had this epoch, or a later one, and is not known to this
// journal: the journal is a copy of before that engine's start.
func (m *Machine) isForeign(epoch uint64, e Engine) bool {
	if e.ID == "" || e.ID == m.own.Engine.ID || epoch < m.own.Epoch {
		return false
	}
	if slices.ContainsFunc(m.own.Before, func(b Engine) bool {
		return b.ID == e.ID
	}) {
		return false
	}
	forgotten := len(m.own.Before) >= StartsKept && e.Start < m.own.Before[0].Start
	return epoch > m.own.Epoch || !forgotten
}

// Stale returns what shows that the nodes are ahead of the journal; empty = nothing does.
func (m *Machine) Stale() []Sign {
	var out []Sign
	add := func(k Kind, seen, has uint64) {
		if seen > has {
			out = append(out, Sign{k, seen, has})
		}
	}
	add(ByEpoch, m.learnt.Epoch, m.own.Epoch)
	if m.learnt.Epoch == m.own.Epoch {
		add(ByCommand, m.learnt.Command, m.own.Command)
		add(ByRecord, m.missing.Seen, m.missing.Has)
	}
	add(ByGeneration, m.present.Generation, m.own.Generation)
	add(ByOrder, m.present.Order, m.own.Order)
	add(ByRejoin, m.claims.trains, m.own.Rejoins)
	if m.foreign.ID != "" {
		out = append(out, Sign{Kind: ByEngine})
	}
	return out
}

// Kind is what has shown that a journal is older than the nodes.
type Kind string

// Signs of an older journal.
const (
	ByEpoch      Kind = "epoch"
	ByCommand    Kind = "command"
	ByRecord     Kind = "record"
	ByGeneration Kind = "generation"
	ByOrder      Kind = "order"
	ByRejoin     Kind = "rejoin of generation" // that was not ordered, as far as the journal knows
	ByEngine     Kind = "engine"               // a node follows one that the journal does not know
)

// Sign is one of them, with the numbers.
type Sign struct {
	Kind      Kind
	Seen, Has uint64
}

// Over reports whether enough is known, or the wait is over. It stays true.
func (m *Machine) Over(now time.Time) bool {
	if !m.over {
		m.over = m.forced ||
			!m.began.IsZero() && (m.whole(now.Sub(m.began)) || now.Sub(m.began) >= m.Limit())
	}
	return m.over
}

// Learning reports whether the learning is not over, as far as was found.
func (m *Machine) Learning() bool { return !m.over }

// Limit is how long the learning lasts at most from the first node on.
func (m *Machine) Limit() time.Duration {
	few := 2*len(m.Missing()) > len(m.own.Nodes) // nothing can be done for the job with these
	if few || len(m.Stale()) > 0 {
		return WaitStale
	}
	return Wait
}

// whole reports whether every node and rank that is known of was heard. To ranks of which an older
// journal may know nothing others may lay claim that they were replaced by: all have the usual wait.
func (m *Machine) whole(waited time.Duration) bool {
	switch stale := len(m.Stale()) > 0; {
	case stale && waited < Wait:
		return false
	case !stale && !m.own.Empty:
		return len(m.Missing()) == 0
	}
	return m.described() && len(m.unannounced()) == 0 ||
		len(m.claims.ranks) == 0 && !m.own.Empty && len(m.Missing()) == 0
}

// described reports whether every rank of the world was described.
func (m *Machine) described() bool {
	return m.World() > 0 && len(m.MissingRanks()) == 0
}

// World is the number of ranks that most of them claim, 0 = not known.
func (m *Machine) World() int {
	best := 0
	for _, w := range slices.Sorted(maps.Keys(m.worlds)) {
		if m.worlds[w] >= m.worlds[best] {
			best = w
		}
	}
	return best
}

// MissingRanks are those of the world that no node has described.
func (m *Machine) MissingRanks() (out []falcon.Rank) {
	for r := range m.World() {
		if !m.claims.isDescribed(falcon.Rank(r)) {
			out = append(out, falcon.Rank(r))
		}
	}
	return out
}

// Missing are the nodes that the journal knows to hold ranks and that were not heard.
func (m *Machine) Missing() []falcon.Node {
	return slices.DeleteFunc(slices.Clone(m.own.Nodes), func(n falcon.Node) bool {
		return m.announced[n]
	})
}

// untold are nodes that are connected and have not said all they know.
func (m *Machine) unannounced() (out []falcon.Node) {
	for n, announced := range m.announced {
		if !announced {
			out = append(out, n)
		}
	}
	return out
}

// Learnt are the highest numbers that were reported.
func (m *Machine) Learnt() Numbers { return m.learnt }

// Predecessor is an engine that nodes follow and that this journal does not know; no id = none.
func (m *Machine) Predecessor() Engine { return m.foreign }
