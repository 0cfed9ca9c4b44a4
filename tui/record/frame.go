package record

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// apart are the fields of a snapshot that frames hold in other ways, or that
// mean nothing once it has been received.
var apart = map[protoreflect.Name]bool{
	"ranks": true, "nodes": true, "nics": true, "series": true, "events": true, "unchanged": true,
	"columns": true, // ranks, packed for the wire
}

// scene is what the frames so far add up to.
type scene struct {
	ranks  *table[*falconv1.RankView]
	nodes  *table[*falconv1.NodeView]
	nics   *table[*falconv1.Nic]
	snap   *falconv1.SnapshotReply
	series *falconv1.Series
	heard  heard
	events []*falconv1.EventLine
	list   *falconv1.RecoveriesReply
	who    []*falconv1.Operator
	tests  []*falconv1.Validation
}

func newScene() *scene {
	return &scene{
		ranks: newTable[*falconv1.RankView](), nodes: newTable[*falconv1.NodeView](), nics: newTable[*falconv1.Nic](),
		snap: &falconv1.SnapshotReply{}, heard: heard{},
	}
}

// diff makes s the scene, and says what that changes.
func (c *scene) diff(s *feed.State, at time.Time) *falconv1.RecordFrame {
	f := &falconv1.RecordFrame{
		AtUnixNs: at.UnixNano(), Conn: int32(s.Conn), SinceUnixNs: unixNs(s.Since), Err: s.Err,
		ReceivedUnixNs: unixNs(s.Received), Slow: s.Slow, RecoveriesErr: s.RecoveriesErr,
		Ranks: c.ranks.diff(s.Snap.GetRanks()), Nodes: c.nodes.diff(s.Snap.GetNodes()), Nics: c.nics.diff(s.Snap.GetNics()),
		Series: c.diffSeries(s.Snap.GetSeries()),
	}
	f.Snap, f.Cleared = diffSnap(c.snap, s.Snap)
	f.Events, f.EventsAnew = diffEvents(c.events, s.Events)
	f.Session = s.Session
	if !same(c.who, s.Operators) {
		f.Operators, f.OperatorsAnew = s.Operators, true
	}
	if !same(c.tests, s.Validations) {
		f.Validations, f.ValidationsAnew = s.Validations, true
	}
	if s.Recoveries != c.list {
		f.Recoveries, f.NoRecoveries = s.Recoveries, s.Recoveries == nil
	}
	c.snap, c.series, c.events, c.list, c.who, c.tests = s.Snap, s.Snap.GetSeries(), s.Events, s.Recoveries, s.Operators, s.Validations
	return f
}

// diffSeries compares with the newest series of the same rank; nil where the
// one that is shown stays.
func (c *scene) diffSeries(now *falconv1.Series) *falconv1.RecordSeries {
	switch {
	case now == c.series, now != nil && c.series != nil && proto.Equal(c.series, now):
		return nil
	case now == nil:
		return &falconv1.RecordSeries{None: true}
	}
	d := pack(c.heard[now.Rank], now)
	c.heard.keep(now)
	return d
}

// applySeries is diffSeries' inverse.
func (c *scene) applySeries(d *falconv1.RecordSeries) error {
	switch {
	case d == nil:
		return nil
	case d.None || d.Series == nil:
		c.series = nil
		return nil
	}
	s, err := unpack(c.heard[d.Series.Rank], d)
	if err != nil {
		return err
	}
	c.series = s
	c.heard.keep(s)
	return nil
}

// same says that two lists hold equal messages.
func same[M interface {
	comparable
	proto.Message
}](a, b []M) bool {
	return slices.EqualFunc(a, b, func(x, y M) bool { return x == y || proto.Equal(x, y) })
}

func unixNs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func atUnixNs(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func diffSnap(was, now *falconv1.SnapshotReply) (*falconv1.SnapshotReply, []int32) {
	if was == now {
		return nil, nil
	}
	out := &falconv1.SnapshotReply{}
	var cleared []int32
	a, b, c := was.ProtoReflect(), now.ProtoReflect(), out.ProtoReflect()
	each(func(f protoreflect.FieldDescriptor) {
		switch {
		case b.Has(f) && !(a.Has(f) && a.Get(f).Equal(b.Get(f))):
			c.Set(f, b.Get(f))
		case a.Has(f) && !b.Has(f):
			cleared = append(cleared, int32(f.Number()))
		}
	})
	return out, cleared
}

// each visits the fields of a snapshot that are kept as they are.
func each(visit func(protoreflect.FieldDescriptor)) {
	fields := (*falconv1.SnapshotReply)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !apart[f.Name()] {
			visit(f)
		}
	}
}

// shallow is another message with the same parts.
func shallow[T proto.Message](s T) T {
	out := fresh[T]()
	to := out.ProtoReflect()
	s.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	return out
}

// diffEvents is what came after the lines that were known.
func diffEvents(was, now []*falconv1.EventLine) (fresh []*falconv1.EventLine, anew bool) {
	if len(was) == 0 {
		return now, len(now) > 0
	}
	last := was[len(was)-1]
	i := slices.IndexFunc(now, func(e *falconv1.EventLine) bool { return e == last })
	if i < 0 {
		return now, true
	}
	return now[i+1:], false
}

// apply makes a frame's picture the scene and returns it. What was returned
// before is not touched.
func (c *scene) apply(f *falconv1.RecordFrame) (*feed.State, error) {
	if f.Whole {
		*c = *newScene()
	}
	if err := c.tables(f); err != nil {
		return nil, err
	}
	if err := c.applySeries(f.Series); err != nil {
		return nil, err
	}
	if f.EventsAnew {
		c.events = nil
	}
	if len(f.Events) > 0 {
		all := slices.Concat(c.events, f.Events)
		c.events = all[max(0, len(all)-feed.MaxEvents):]
	}
	if f.Recoveries != nil || f.NoRecoveries {
		c.list = f.Recoveries
	}
	if f.OperatorsAnew {
		c.who = f.Operators
	}
	if f.ValidationsAnew {
		c.tests = f.Validations
	}
	c.snap = c.applySnap(f)
	return &feed.State{
		Snap: c.snap, Events: c.events, Conn: feed.Conn(f.Conn), Since: atUnixNs(f.SinceUnixNs), Err: f.Err,
		Received: atUnixNs(f.ReceivedUnixNs), Slow: f.Slow, Recoveries: c.list, RecoveriesErr: f.RecoveriesErr,
		Session: f.Session, Operators: c.who, Validations: c.tests, Memo: &feed.Memo{},
	}, nil
}

func (c *scene) tables(f *falconv1.RecordFrame) error {
	if err := c.ranks.apply(f.Ranks); err != nil {
		return err
	}
	if err := c.nodes.apply(f.Nodes); err != nil {
		return err
	}
	return c.nics.apply(f.Nics)
}

func (c *scene) applySnap(f *falconv1.RecordFrame) *falconv1.SnapshotReply {
	out := &falconv1.SnapshotReply{
		Ranks: c.ranks.rows, Nodes: c.nodes.rows, Nics: c.nics.rows, Series: c.series,
		Events: c.events[max(0, len(c.events)-snapEvents):],
	}
	was, now, to := c.snap.ProtoReflect(), f.Snap.ProtoReflect(), out.ProtoReflect()
	each(func(d protoreflect.FieldDescriptor) {
		switch {
		case now.Has(d):
			to.Set(d, now.Get(d))
		case was.Has(d) && !slices.Contains(f.Cleared, int32(d.Number())):
			to.Set(d, was.Get(d))
		}
	})
	return out
}

// snapEvents is how many lines a snapshot holds at most.
const snapEvents = 64
