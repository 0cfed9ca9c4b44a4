package act

import (
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Standing is what the Executor has seen of engines: a new message each time.
func (d *Executor) Standing() *falconv1.Standing {
	return proto.CloneOf(d.seen)
}

// Fence forbids commands of epochs before this one.
func (d *Executor) Fence(epoch uint64) {
	if epoch > d.seen.GetEpoch() {
		d.seen = &falconv1.Standing{Epoch: epoch}
		d.floor = 0
	}
}

// Follow is Fence for an engine that has named itself, and the newest record of its journal. One of
// an epoch before is not followed.
func (d *Executor) Follow(epoch uint64, engine *falconv1.EngineName, record uint64) {
	d.Fence(epoch)
	if epoch != d.seen.GetEpoch() {
		return
	}
	was := d.seen.GetEngine()
	if engine.GetId() != "" && engine.GetId() != was.GetId() {
		// until this one is obeyed: it may be ended before it has learnt of it
		if was != nil && d.seen.Before == nil {
			d.seen.Before = &falconv1.Seen{Engine: was, Record: d.seen.Record}
		}
		d.seen.Engine, d.seen.Record = engine, 0
	}
	d.seen.Record = max(d.seen.Record, record)
}

// obey notes a command that is not of an epoch before.
func (d *Executor) obey(id, record uint64) {
	d.seen.Command = max(d.seen.Command, id)
	d.seen.Record = max(d.seen.Record, record)
	d.seen.Before = nil
}

// Resume takes over the standing of the Executor before, as far as it is not of an earlier epoch.
func (d *Executor) Resume(s *falconv1.Standing) {
	d.Fence(s.GetEpoch())
	if s.GetEpoch() == 0 ||
		s.GetEpoch() != d.seen.GetEpoch() ||
		d.seen.Engine != nil {
		return
	}
	d.seen = proto.CloneOf(s)
}
