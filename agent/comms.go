package agent

import (
	"slices"

	"github.com/failslow/falcon/agent/ring"
)

// commTable is a process's communicators, as its hook lists them.
type commTable struct {
	list    []ring.Comm
	ids     []uint64 // by slot, 0 = unknown
	largest int      // size of the largest one seen so far
	current bool     // read since the last outdate
}

func (t *commTable) readTable(seg Segment) {
	t.current = true
	t.list = seg.Comms(t.list)
	clear(t.ids)
	for _, c := range t.list {
		for int(c.Slot) >= len(t.ids) {
			t.ids = append(t.ids, 0)
		}
		t.ids[c.Slot] = c.ID
		t.largest = max(t.largest, c.Size)
	}
}

// outdate allows one more read for a slot that is unknown.
func (t *commTable) outdate() {
	t.current = false
}

func (t *commTable) knowsSlot(slot uint32) bool {
	return int(slot) < len(t.ids) && t.ids[slot] != 0
}

// idOfSlot is the communicator's id, the slot's number where it is unknown.
func (t *commTable) idOfSlot(slot uint32) uint64 {
	if t.knowsSlot(slot) {
		return t.ids[slot]
	}
	return uint64(slot)
}

// slotOfComm is the slot of a communicator, ring.CommNone where there is none.
func (t *commTable) slotOfComm(id uint64) uint32 {
	for _, c := range t.list {
		if c.ID == id {
			return c.Slot
		}
	}
	return ring.CommNone
}

// commInSlot is the communicator of a slot; the zero value where there is none.
func (t *commTable) commInSlot(slot uint32) ring.Comm {
	for _, c := range t.list {
		if c.Slot == slot {
			return c
		}
	}
	return ring.Comm{}
}

// rankInLargest is the process's rank in its largest communicator, -1 while that is unknown.
// world is the job's size, negative where the launcher gave none.
func (t *commTable) rankInLargest(world int) int {
	for _, c := range t.list {
		if c.Size == t.largest && c.Rank >= 0 && (world < 0 || world == c.Size) {
			return c.Rank
		}
	}
	return -1
}

func (t *commTable) anyInState(state ring.CommState) bool {
	return slices.ContainsFunc(t.list, func(c ring.Comm) bool { return c.State == state })
}
