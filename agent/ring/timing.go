package ring

import falcon "github.com/failslow/falcon"

// Timing is one call timed on the device in a profile window.
type Timing struct {
	Comm       uint32 // slot
	Ordinal    uint64 // on its communicator
	Op         falcon.Op
	Dtype      uint8
	Flags      uint8
	Peer       int32
	Bytes      uint64 // payload of this rank
	StartNs    int64  // on the device, since the window's base event
	DurationNs int64
	QueueNs    int64 // device start − host enter
	Window     uint32
}

// Timings appends those of one window to out[:0], in the order of their
// writing; complete once Control().ProfileDone == window. A member of a group
// has the group's start and duration and FlagGrouped.
func (p *Process) Timings(window uint32, out []Timing) []Timing {
	out = out[:0]
	p.access(func() {
		head := p.mem.readUint64(p.control + ctlTimingHead)
		first := max(head, p.timingSlots) - p.timingSlots
		for seq := first + 1; seq != 0 && seq <= head; seq++ {
			if t, ok := p.timingAt(seq); ok && t.Window == window {
				out = append(out, t)
			}
		}
	})
	return out
}

func (p *Process) timingAt(seq uint64) (t Timing, ok bool) {
	at := p.timings + (seq-1)%p.timingSlots*timingBytes
	w := p.mem[at : at+timingBytes]
	if w.readUint64(timSeq) != seq {
		return t, false
	}
	kind := w.readUint32(timOp)
	t = Timing{
		Ordinal:    w.readUint64(timOrdinal),
		Bytes:      w.readUint64(timBytes),
		StartNs:    w.readInt64(timStartNs),
		DurationNs: w.readInt64(timDurationNs),
		QueueNs:    w.readInt64(timQueueNs),
		Comm:       w.readUint32(timComm),
		Peer:       w.readInt32(timPeer),
		Window:     w.readUint32(timWindow),
		Op:         falcon.Op(kind),
		Dtype:      uint8(kind >> 8),
		Flags:      uint8(kind >> 16),
	}
	return t, w.readUint64(timSeq) == seq && t.Comm < commsMax
}
