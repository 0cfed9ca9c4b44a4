package ring

import falcon "github.com/failslow/falcon"

// Record is one NCCL call of one rank. Times are CLOCK_MONOTONIC ns of the node.
type Record struct {
	EnterNs, ExitNs int64
	Count           uint64 // elements
	Stream          uint64 // opaque
	Ordinal         uint64 // number of the call on its communicator, from 0
	Seq             uint64 // number of the record in its ring, from 1
	Comm            uint32 // slot in the communicator table, CommNone for group marks
	Peer            int32  // peer or root, -1 where there is none
	Step            uint32 // low 32 bits of the iteration the adapter began, 0xffffffff before
	Op              falcon.Op
	Dtype           uint8 // ncclDataType_t
	Depth           uint8 // group depth at the call
	Flags           uint8
	Ring            uint8 // calling thread's ring
}

// Drain copies the next records into buf, oldest first over all threads, and
// says how many there are and how many were overwritten before it came. A call
// is recorded when it returns, so one that took long may come in a later batch
// than a shorter one of another thread. Zero means nothing new (or Err).
func (p *Process) Drain(buf []Record) (n int, lost uint64) {
	p.access(func() {
		_ = p.readClock()
		var active [ringsMax]int
		var heads [ringsMax]uint64
		rings := p.activeRings(&active, &heads)
		for n < len(buf) {
			next := -1
			for _, i := range rings {
				lost += p.fillPeek(i, heads[i])
				if p.peeked[i] && (next < 0 || p.peek[i].EnterNs < p.peek[next].EnterNs) {
					next = i
				}
			}
			if next < 0 {
				break
			}
			buf[n] = p.peek[next]
			p.peeked[next] = false
			n++
		}
	})
	return n, lost
}

// activeRings lists the rings that have something to read, with their heads.
func (p *Process) activeRings(list *[ringsMax]int, heads *[ringsMax]uint64) []int {
	n := 0
	for i := range heads {
		heads[i] = p.mem.readUint64(p.ringOffset(i) + rngHead)
		if p.peeked[i] || p.cursor[i] < heads[i] {
			list[n] = i
			n++
		}
	}
	return list[:n]
}

// fillPeek makes ring i's next record available, and returns how many were
// lost on the way. A head that went backwards is ignored: nothing is read.
func (p *Process) fillPeek(i int, head uint64) (lost uint64) {
	for !p.peeked[i] && p.cursor[i] < head {
		if head-p.cursor[i] > ringSlots {
			lost += head - ringSlots - p.cursor[i]
			p.cursor[i] = head - ringSlots
		}
		p.peeked[i] = p.readRecord(i, p.cursor[i]+1)
		p.cursor[i]++
		if !p.peeked[i] {
			lost++
		}
	}
	return lost
}

// readRecord copies the record with this number into the peek of ring i; false
// when it has been overwritten. Pairs with falcon_ring_write's stores of seq.
func (p *Process) readRecord(i int, seq uint64) bool {
	at := p.ringOffset(i) + pageBytes + (seq-1)%ringSlots*recordBytes
	w := p.mem[at : at+recordBytes]
	if w.readUint64(recSeq) != seq {
		return false
	}
	r := &p.peek[i]
	enter := w.readUint64(recEnter)
	exit := w.readUint64(recExit)
	r.Count, r.Stream, r.Ordinal = w.readUint64(recCount), w.readUint64(recStream), w.readUint64(recOrdinal)
	r.Comm, r.Peer, r.Step = w.readUint32(recComm), w.readInt32(recPeer), w.readUint32(recStep)
	kind := w.readUint32(recOp)
	if w.readUint64(recSeq) != seq {
		return false
	}
	r.Seq = seq
	r.Ring = uint8(i)
	r.EnterNs, r.ExitNs = p.clock.ticksToMono(enter), p.clock.ticksToMono(exit)
	r.Op = falcon.Op(kind)
	r.Dtype = uint8(kind >> 8)
	r.Depth = uint8(kind >> 16)
	r.Flags = uint8(kind >> 24)
	if r.Comm >= commsMax {
		r.Comm = CommNone
	}
	return true
}
