package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// ErrFrame is wrapped by errors about a frame that can't be decoded.
var ErrFrame = errors.New("record: bad frame")

// apart are the fields of a snapshot that frames hold in other ways, or that
// mean nothing once it has been received.
var apart = map[protoreflect.Name]bool{
	"ranks":     true,
	"columns":   true,
	"nodes":     true,
	"nics":      true,
	"series":    true,
	"events":    true,
	"unchanged": true,
}

// scene is what the frames so far add up to.
type scene struct {
	snap   *falconv1.SnapshotReply
	table  *columns.Table // of the ranks; numbered from 1 since the newest whole frame
	series *falconv1.Series
	heard  heard
	events []*falconv1.EventLine
	list   *falconv1.RecoveriesReply
	who    []*falconv1.Operator
	tests  []*falconv1.Validation
}

func newScene() *scene {
	return &scene{
		snap:  &falconv1.SnapshotReply{},
		table: &columns.Table{},
		heard: heard{},
	}
}

// recordState makes s the scene, and returns what that changes.
func (c *scene) recordState(s *feed.State, at time.Time) *falconv1.RecordFrame {
	f := &falconv1.RecordFrame{
		AtUnixNs:       at.UnixNano(),
		Conn:           int32(s.Conn),
		SinceUnixNs:    unixNs(s.Since),
		Err:            s.Err,
		ReceivedUnixNs: unixNs(s.Received),
		Slow:           s.Slow,
		RecoveriesErr:  s.RecoveriesErr,
		Series:         c.diffSeries(s.Snap.GetSeries()),
	}
	if c.snap != s.Snap {
		f.Snap, f.Cleared = diffSnap(c.snap, s.Snap)
		f.Snap.Columns = c.diffRanks(s)
		f.Snap.Nodes, f.Nodes = diffRows(c.snap.GetNodes(), s.Snap.GetNodes())
		f.Snap.Nics, f.Nics = diffRows(c.snap.GetNics(), s.Snap.GetNics())
	}
	f.Events, f.EventsAnew = diffEvents(c.events, s.Events)
	f.Session = s.Session
	if !sameMessages(c.who, s.Operators) {
		f.Operators = s.Operators
		f.OperatorsAnew = true
	}
	if !sameMessages(c.tests, s.Validations) {
		f.Validations = s.Validations
		f.ValidationsAnew = true
	}
	if s.Recoveries != c.list {
		f.Recoveries = s.Recoveries
		f.NoRecoveries = s.Recoveries == nil
	}
	c.snap = s.Snap
	c.series = s.Snap.GetSeries()
	c.events = s.Events
	c.list = s.Recoveries
	c.who = s.Operators
	c.tests = s.Validations
	return f
}

// diffRanks encodes ranks as the wire does, against those of the frame before.
func (c *scene) diffRanks(s *feed.State) *falconv1.RankColumns {
	var now columns.Table
	if s.Columns != nil {
		now = *s.Columns
	} else {
		now = *columns.Of(len(s.Snap.GetRanks()), s.Snap.GetRanks())
	}
	now.Version = c.table.Version + 1
	base := c.table
	if base.Version == 0 {
		base = nil
	}
	c.table = &now
	return columns.Encode(base, &now)
}

// applyRanks is diffRanks' inverse.
func (c *scene) applyRanks(d *falconv1.RankColumns) error {
	if d == nil {
		return nil
	}
	t, err := columns.Decode(c.table.Version+1, c.table, d)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	c.table = t
	return nil
}

// diffRows lists the rows that are not as they were; nil and nil where all are.
func diffRows[M proto.Message](was, now []M) ([]M, *falconv1.RecordRows) {
	var changed []M
	out := &falconv1.RecordRows{Rows: int32(len(now))}
	gap := uint32(0)
	for i, row := range now {
		if i < len(was) && (any(was[i]) == any(row) || proto.Equal(was[i], row)) {
			gap++
			continue
		}
		changed = append(changed, row)
		out.Gaps = append(out.Gaps, gap)
		gap = 0
	}
	if len(changed) == 0 && len(was) == len(now) {
		return nil, nil
	}
	return changed, out
}

// rowsMost bounds a list that a broken frame can make.
const rowsMost = 1 << 20

// applyRows is diffRows' inverse.
func applyRows[M interface {
	comparable
	proto.Message
}](was, changed []M, d *falconv1.RecordRows) ([]M, error) {
	if d == nil {
		return was, nil
	}
	if d.Rows < 0 || d.Rows > rowsMost || len(changed) != len(d.Gaps) {
		return nil, fmt.Errorf("%w: %d rows and %d gaps of a list of %d",
			ErrFrame, len(changed), len(d.Gaps), d.Rows)
	}
	out := make([]M, d.Rows)
	copy(out, was)
	at := 0
	for k, gap := range d.Gaps {
		if at += int(gap); at >= len(out) {
			return nil, fmt.Errorf("%w: row %d of %d", ErrFrame, at, len(out))
		}
		out[at] = changed[k]
		at++
	}
	var missing M
	if slices.Contains(out, missing) {
		return nil, fmt.Errorf("%w: a list of %d rows lacks some", ErrFrame, len(out))
	}
	return out, nil
}

// diffSeries compares with the newest series of the same rank; nil for no change.
func (c *scene) diffSeries(now *falconv1.Series) *falconv1.RecordSeries {
	switch {
	case now == c.series, now != nil && c.series != nil && proto.Equal(c.series, now):
		return nil
	case now == nil:
		return &falconv1.RecordSeries{None: true}
	}
	d := packSeries(c.heard[now.Rank], now)
	c.heard.keepNewest(now)
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
	s, err := unpackSeries(c.heard[d.Series.Rank], d)
	if err != nil {
		return err
	}
	c.series = s
	c.heard.keepNewest(s)
	return nil
}

// sameMessages reports whether two lists hold equal messages.
func sameMessages[M interface {
	comparable
	proto.Message
}](a, b []M) bool {
	return slices.EqualFunc(a, b, func(x, y M) bool {
		return x == y || proto.Equal(x, y)
	})
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

// diffSnap is the fields of now that have changed, and the numbers of those now empty.
func diffSnap(was, now *falconv1.SnapshotReply) (*falconv1.SnapshotReply, []int32) {
	out := &falconv1.SnapshotReply{}
	var cleared []int32
	a, b, c := was.ProtoReflect(), now.ProtoReflect(), out.ProtoReflect()
	eachPlainField(func(f protoreflect.FieldDescriptor) {
		switch {
		case b.Has(f) && !(a.Has(f) && a.Get(f).Equal(b.Get(f))):
			c.Set(f, b.Get(f))
		case a.Has(f) && !b.Has(f):
			cleared = append(cleared, int32(f.Number()))
		}
	})
	return out, cleared
}

// eachPlainField visits the fields of a snapshot that are kept as they are.
func eachPlainField(visit func(protoreflect.FieldDescriptor)) {
	fields := (*falconv1.SnapshotReply)(nil).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !apart[f.Name()] {
			visit(f)
		}
	}
}

// diffEvents is what came after the lines that were known.
func diffEvents(was, now []*falconv1.EventLine) (fresh []*falconv1.EventLine, again bool) {
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

// applyFrame makes a frame the scene and returns it; earlier results are not touched.
func (c *scene) applyFrame(f *falconv1.RecordFrame) (*feed.State, error) {
	if f.Whole {
		*c = *newScene()
	}
	if err := errors.Join(c.applyRanks(f.Snap.GetColumns()), c.applySeries(f.Series)); err != nil {
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
	snap, err := c.applySnap(f)
	if err != nil {
		return nil, err
	}
	c.snap = snap
	return &feed.State{
		Snap:          c.snap,
		Events:        c.events,
		Conn:          feed.Conn(f.Conn),
		Since:         atUnixNs(f.SinceUnixNs),
		Err:           f.Err,
		Received:      atUnixNs(f.ReceivedUnixNs),
		Slow:          f.Slow,
		Recoveries:    c.list,
		RecoveriesErr: f.RecoveriesErr,
		Session:       f.Session,
		Operators:     c.who,
		Validations:   c.tests,
		Columns:       c.table,
		Memo:          &feed.Memo{},
	}, nil
}

func (c *scene) applySnap(f *falconv1.RecordFrame) (*falconv1.SnapshotReply, error) {
	nodes, badNodes := applyRows(c.snap.GetNodes(), f.Snap.GetNodes(), f.Nodes)
	nics, badNics := applyRows(c.snap.GetNics(), f.Snap.GetNics(), f.Nics)
	if err := errors.Join(badNodes, badNics); err != nil {
		return nil, err
	}
	out := &falconv1.SnapshotReply{
		Nodes:  nodes,
		Nics:   nics,
		Series: c.series,
		Events: c.events[max(0, len(c.events)-snapEvents):],
	}
	was, now, to := c.snap.ProtoReflect(), f.Snap.ProtoReflect(), out.ProtoReflect()
	eachPlainField(func(d protoreflect.FieldDescriptor) {
		switch {
		case now.Has(d):
			to.Set(d, now.Get(d))
		case was.Has(d) && !slices.Contains(f.Cleared, int32(d.Number())):
			to.Set(d, was.Get(d))
		}
	})
	return out, nil
}

// snapEvents is how many lines a snapshot holds at most.
const snapEvents = 64
