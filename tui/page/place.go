package page

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// What a page can do beyond drawing, so that a link can say where on it one
// stands, and bring somebody else there. A page implements what it has.
type (
	// Zoomer has levels of detail, from 0.
	Zoomer interface {
		Zoom() (level int, chosen bool) // not chosen: by itself
		SetZoom(level int)
	}
	// Scrubber has a hairline over iterations.
	Scrubber interface {
		At() (iteration int64, chosen bool) // not chosen: it follows the newest
		SetAt(iteration int64)
	}
	// Chooser shows one of several things that have ids.
	Chooser interface {
		Chosen(s *State) string
		Choose(id string)
	}
)

// Showing is the state with another incident in the present one's place: to be
// drawn, not to be acted on. Nothing is proposed there, and nothing is open
// that the reply doesn't hold. It shares everything else with s.
func (s *State) Showing(r *falconv1.IncidentsReply) *State {
	snap := shallow(s.Snap())
	snap.Incidents, snap.Ladder = r.GetIncidents(), nil
	if l := r.GetLadders(); len(l) > 0 && l[0] != nil {
		snap.Ladder = shallow(l[0])
		snap.Ladder.Proposal = nil
	}
	if v := r.GetValidations(); len(v) > 0 {
		snap.Validation = v[0]
	}
	f := *s.Feed
	f.Snap = snap
	out := *s
	out.Feed = &f
	return &out
}

// shallow copies a message's fields, not what they point at: a snapshot of
// 100,000 ranks is never copied as a whole.
func shallow[M proto.Message](m M) M {
	src := m.ProtoReflect()
	dst := src.New()
	src.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(f, v)
		return true
	})
	return dst.Interface().(M)
}

// OpenIncidents counts those whose fault lasts.
func (s *State) OpenIncidents() int {
	n := 0
	for _, i := range s.Snap().Incidents {
		if Open(i) {
			n++
		}
	}
	return n
}

// RanksOn lists the ranks whose device is on one of the nodes, ascending.
func (s *State) RanksOn(nodes ...string) []int32 {
	var out []int32
	for i, r := range s.Ranks {
		if r != nil && slices.Contains(nodes, feed.NodeOf(r.GetDevice())) {
			out = append(out, int32(i))
		}
	}
	return out
}
