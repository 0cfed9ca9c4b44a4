package fleet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/failslow/falcon"
)

// Times of agents with one name.
const (
	twinHeard = 6 * time.Second  // an agent that was heard so lately is there: another is a second one
	twinShown = 30 * time.Second // a second agent that has not come back for so long has gone
)

// Twins are two agents that call themselves the same node: one configuration on two machines.
type Twins struct {
	Node           falcon.Node
	Stays, Refused string // addresses
	At             time.Time
}

func (t *Twins) Error() string {
	return fmt.Sprintf(
		"two agents call themselves node %s: the one at %s stays, the one at %s is refused; give it a name and a certificate of its own (node in agent.yaml)",
		t.Node, t.Stays, t.Refused,
	)
}

// Unwrap is ErrTwin.
func (t *Twins) Unwrap() error { return ErrTwin }

// judgeTwin decides which of two agents stays where the node's present stream is open: the
// one of the same boot has come back, and one that was not heard for a while has gone. Else
// they are two. The first stays, unless the second alone follows processes.
func (n *Node) judgeTwin(s *Session, now time.Time) error {
	old := n.Session
	switch {
	case old == nil:
		return nil
	case bootOf(s) == n.boot:
		old.End(ErrSuperseded)
		return nil
	case n.Age(now) >= twinHeard && !n.followsRanks():
		old.End(ErrSuperseded)
		return nil
	case n.Age(now) >= 2*twinHeard:
		old.End(ErrSuperseded)
		return nil
	}
	n.twins = &Twins{
		Node:    n.Name,
		Stays:   shownAddress(old),
		Refused: shownAddress(s),
		At:      now,
	}
	if n.followsRanks() || s.Hello.GetLiving() == 0 {
		return n.twins
	}
	n.twins.Stays, n.twins.Refused = n.twins.Refused, n.twins.Stays
	old.End(n.twins)
	return nil
}

// followsRanks reports whether the agent of the present stream follows processes.
func (n *Node) followsRanks() bool {
	if n.Beat != nil {
		return len(n.Beat.GetRanks()) > 0
	}
	return n.Hello.GetLiving() > 0
}

func bootOf(s *Session) string {
	return s.Hello.GetAgent() + "\x00" + s.Hello.GetBoot()
}

func shownAddress(s *Session) string {
	return cmp.Or(s.Addr, "an unknown address")
}

// Twins is the newest case of two agents with this node's name; nil = none.
func (n *Node) Twins() *Twins {
	if n == nil {
		return nil
	}
	return n.twins
}

// Twins is a case of two agents with one name that goes on; nil = none.
func (r *Registry) Twins(now time.Time) *Twins {
	for _, n := range r.Nodes() {
		if n.twins != nil && now.Sub(n.twins.At) < twinShown {
			return n.twins
		}
	}
	return nil
}
