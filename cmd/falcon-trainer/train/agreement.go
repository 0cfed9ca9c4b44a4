package train

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// errElsewhere is the failure of a rank that did its own part.
var errElsewhere = errors.New("it failed on another rank, whose log says why")

// agreement is what all ranks decide together, over the communicator of all of them.
type agreement struct {
	comms *communicators
	q     *device.Queue
	tally tally
	gate  device.Floats // one element
	word  []float32     // pinned: its value
}

func newAgreement(comms *communicators, q *device.Queue, t tally) agreement {
	return agreement{
		comms: comms,
		q:     q,
		tally: t,
		gate:  q.AllocFloats(1),
		word:  device.AllocHost[float32](q, 1),
	}
}

// barrier waits for all ranks as frameworks do, by a sum of one float: how many of
// them come with a failure. why is nil on all ranks or on none.
func (a *agreement) barrier(mine error) (why, err error) {
	clear(a.word)
	if mine != nil {
		a.word[0] = 1
	}
	device.CopyIn(a.q, a.gate.Memory(), a.word)
	a.q.SumFloats(a.comms.groups.world, a.gate)
	device.CopyOut(a.q, a.word, a.gate.Memory())
	if err := a.comms.finishWork(); err != nil {
		return nil, fmt.Errorf("vote: %w", err)
	}
	if mine == nil && a.word[0] != 0 {
		mine = errElsewhere
	}
	return mine, nil
}

// voteOn is a barrier without the distinction: a failure on any rank is one on all.
func (a *agreement) voteOn(mine error) error {
	why, err := a.barrier(mine)
	return errors.Join(why, err)
}

// leastValue is the least of all ranks' values.
func (a *agreement) leastValue(mine uint64) (uint64, error) {
	a.tally.beginVote(mine)
	a.tally.reduceOver(a.comms.groups.world)
	if err := a.comms.finishWork(); err != nil {
		return 0, err
	}
	_, least := a.tally.lossAndVote()
	return least, nil
}

// gatherEntries joins the entries of all ranks in the order of their ranks.
func (a *agreement) gatherEntries(own []byte) ([]byte, error) {
	world := a.comms.groups.world
	if world == nil {
		return own, nil
	}
	mine := a.q.Alloc(len(own))
	all := a.q.Alloc(len(own) * world.Size)
	in := device.AllocHost[byte](a.q, len(own))
	out := device.AllocHost[byte](a.q, len(own)*world.Size)
	copy(in, own)
	device.CopyIn(a.q, mine, in)
	a.q.GatherBytes(world, all, mine)
	device.CopyOut(a.q, out, all)
	return out, a.comms.finishWork()
}
