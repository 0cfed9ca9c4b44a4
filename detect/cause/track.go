package cause

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"time"
)

// look is one reading as numbers: those that a summary reads, in an order of its kind, and
// why fields are missing. The first two are when it arrived and, less that, when it was
// taken; see History.stamp.
type look struct {
	values []uint64
	text   string
}

// track keeps the newest looks at one device, host or port: the oldest and the newest as
// they are, and what lies between as differences from one to the next. A device at rest
// takes some ten bytes a look.
type track struct {
	n            int // looks
	oldest, last look
	early, late  uint64 // step between arrivals that the oldest and the newest ended
	rows         []byte // looks after the oldest, from off on
	off          int
}

// add takes in a look. Those that are too old, or too many, are dropped; the newest stays.
func (t *track) add(l look) {
	if t.n == 0 {
		t.oldest = look{slices.Clone(l.values), l.text}
	} else {
		t.room()
		t.rows, t.late = appendLook(t.rows, t.last, l, t.late)
	}
	t.last = look{append(t.last.values[:0], l.values...), l.text}
	t.n++
	for t.n > 1 &&
		(t.n > keepReadings || time.Duration(l.values[0]-t.oldest.values[0]) > keepSpan) {
		t.drop()
	}
}

// drop forgets the oldest look.
func (t *track) drop() {
	size := 0
	t.oldest, t.early, size = takeLook(t.rows[t.off:], t.oldest, t.early)
	t.off += size
	t.n--
}

// Growth of rows. A track at its full length neither grows nor is copied for every look.
const (
	rowsLeast = 64
	rowMost   = 32 // of a device at rest
)

// room makes room for a look: what was dropped is used again.
func (t *track) room() {
	if cap(t.rows)-len(t.rows) >= rowMost {
		return
	}
	if t.off >= max(rowsLeast, len(t.rows)/8) {
		t.rows = append(t.rows[:0], t.rows[t.off:]...)
		t.off = 0
		return
	}
	grown := make(
		[]byte,
		len(t.rows)-t.off,
		len(t.rows)-t.off+max(rowsLeast, len(t.rows)/4),
	)
	copy(grown, t.rows[t.off:])
	t.rows, t.off = grown, 0
}

// looks yields all, oldest first. The values are valid until the next.
func (t *track) looks(yield func(look) bool) {
	if t.n == 0 {
		return
	}
	at := look{slices.Clone(t.oldest.values), t.oldest.text}
	step := t.early
	rows := t.rows[t.off:]
	for i := range t.n {
		if i > 0 {
			size := 0
			at, step, size = takeLook(rows, at, step)
			rows = rows[size:]
		}
		if !yield(at) {
			return
		}
	}
}

// Of a row: which values have changed, and by how much. A changed text and another number
// of values have bits of their own, as a value of which the bit is beyond them is written
// whether it changed or not.
const (
	textChanged   = 1 << 0
	lengthChanged = 1 << 1
	firstValue    = 2
	maskBits      = 62
)

// appendLook writes a look as its difference from the one before. Step is what the arrivals of
// the two before lay apart: that is expected again.
func appendLook(b []byte, was, l look, step uint64) ([]byte, uint64) {
	mask := uint64(0)
	if l.text != was.text {
		mask |= textChanged
	}
	if len(l.values) != len(was.values) {
		mask |= lengthChanged
	}
	for i := range min(len(l.values), maskBits) {
		if delta(was, l, i, step) != 0 {
			mask |= 1 << (i + firstValue)
		}
	}
	b = binary.AppendUvarint(b, mask)
	if mask&textChanged != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(l.text))), l.text...)
	}
	if mask&lengthChanged != 0 {
		b = binary.AppendUvarint(b, uint64(len(l.values)))
	}
	for i := range l.values {
		if i >= maskBits || mask&(1<<(i+firstValue)) != 0 {
			b = binary.AppendVarint(b, int64(delta(was, l, i, step)))
		}
	}
	return b, l.values[0] - was.values[0]
}

// delta is what a value is beyond what is expected of it. It wraps around.
func delta(was, l look, i int, step uint64) uint64 {
	switch {
	case i == 0:
		return l.values[0] - was.values[0] - step
	case i < len(was.values):
		return l.values[i] - was.values[i]
	}
	return l.values[i]
}

// takeLook reads the look after was, in whose place it is put.
func takeLook(b []byte, was look, step uint64) (l look, next uint64, size int) {
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b[size:])
		size += n
		return v
	}
	mask := uvarint()
	l = was
	if mask&textChanged != 0 {
		n := int(uvarint())
		l.text = string(b[size : size+n])
		size += n
	}
	if mask&lengthChanged != 0 {
		n := int(uvarint())
		more := max(0, n-len(l.values))
		l.values = append(l.values, make([]uint64, more)...)[:n]
	}
	l.values[0] += step
	first := l.values[0] - step
	take := func(i int) {
		v, n := binary.Varint(b[size:])
		l.values[i] += uint64(v)
		size += n
	}
	for rest := mask >> firstValue; rest != 0; rest &= rest - 1 {
		take(bits.TrailingZeros64(rest))
	}
	for i := maskBits; i < len(l.values); i++ {
		take(i)
	}
	return l, l.values[0] - first, size
}
