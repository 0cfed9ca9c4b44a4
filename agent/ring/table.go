package ring

// CommState is what became of a communicator.
type CommState uint32

// States of a communicator.
const (
	CommFree    CommState = commFree
	CommLive    CommState = commLive
	CommGone    CommState = commGone    // finalized or destroyed
	CommAborted CommState = commAborted // aborted or revoked
)

// Comm is one entry of the communicator table.
type Comm struct {
	Slot       uint32
	ID         uint64 // same on all its ranks; 0 when it was made out of the hook's sight
	Parent     uint64 // id of the communicator it was split from, else 0
	Calls      uint64 // collectives and sends/receives let through so far
	Cut        uint64 // the calls that its gate lets through, when Armed
	Armed      bool   // the gate holds what comes behind the cut
	Generation uint32 // of the slot: another generation is another communicator
	State      CommState
	Size, Rank int // -1 until NCCL reports it
	Device     int // CUDA device, -1 until known
	Traffic    Traffic
	Choices    [choicesMax]uint32 // NCCL's by operation, as its profiler interface says them: FALCON_CHOICE
	Name       string
}

// Comms appends the communicators of the table to out[:0], gone ones included
// as long as their slot is not used again.
func (p *Process) Comms(out []Comm) []Comm {
	out = out[:0]
	p.access(func() {
		for slot := range uint32(commsMax) {
			if c, ok := p.commEntry(slot); ok {
				out = append(out, c)
			}
		}
	})
	return out
}

func (p *Process) commEntry(slot uint32) (c Comm, ok bool) {
	at := p.comms + uint64(slot)*commBytes
	w := p.mem[at : at+commBytes]
	if w.readUint32(comState) == uint32(CommFree) {
		return c, false
	}
	var text [8]uint64
	ok = w.readConsistent(comSeq, func() {
		c = Comm{
			Slot:       slot,
			ID:         w.readUint64(comID),
			Parent:     w.readUint64(comParent),
			Calls:      w.readUint64(comGate) & gateCountMask,
			Generation: w.readUint32(comGeneration),
			State:      CommState(w.readUint32(comState)),
			Size:       int(w.readInt32(comSize)),
			Rank:       int(w.readInt32(comRank)),
			Device:     int(w.readInt32(comDevice)),
			Traffic:    Traffic(w.readUint32(comTraffic)),
		}
		for i := range c.Choices {
			c.Choices[i] = w.readUint32(comChoices + 4*uint64(i))
		}
		text = w.copyName(comName)
	})
	if ok {
		c.Armed, c.Cut = w.fullCut(comGate)
		c.Name = printableName(text)
	}
	return c, ok && c.State <= CommAborted
}

// fullCut completes a gate's cut, which is a number modulo 2^23, by its count: a
// cut lies at most half of that ahead, or has been reached.
func (m image) fullCut(off uint64) (armed bool, calls uint64) {
	g := m.readUint64(off)
	if g&gateArmed == 0 {
		return false, 0
	}
	count := g & gateCountMask
	return true, count + (g>>gateCutShift-count)&gateCutMask
}
