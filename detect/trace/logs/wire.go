package logs

import (
	"encoding/binary"

	"github.com/failslow/falcon/detect/trace"
)

// wire is the value of one field of a protobuf message.
type wire struct {
	bits  uint64 // a varint, or a fixed number
	bytes []byte // a string, a message, or packed numbers
	size  int    // of a fixed number
}

// packed returns the numbers of a repeated field, packed or single.
func (v wire) packed(size int) []byte {
	if v.size != size {
		return v.bytes
	}
	b := binary.LittleEndian.AppendUint64(nil, v.bits)
	return b[:size]
}

// eachField calls each for the fields of a protobuf message. Groups are refused;
// events have none.
func eachField(b []byte, each func(number int, v wire)) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29 {
			return trace.ErrMalformed
		}
		b = b[n:]
		v, n := readWire(b, key&7)
		if n < 0 {
			return trace.ErrMalformed
		}
		each(int(key>>3), v)
		b = b[n:]
	}
	return nil
}

// readWire reads a value of a wire type; n is its length, negative if it is invalid.
func readWire(b []byte, kind uint64) (v wire, n int) {
	const varint, fixed64, delimited, fixed32 = 0, 1, 2, 5
	switch {
	case kind == varint:
		if v.bits, n = binary.Uvarint(b); n > 0 {
			return v, n
		}
	case kind == fixed64 && len(b) >= 8:
		return wire{bits: binary.LittleEndian.Uint64(b), size: 8}, 8
	case kind == fixed32 && len(b) >= 4:
		return wire{bits: uint64(binary.LittleEndian.Uint32(b)), size: 4}, 4
	case kind == delimited:
		if size, n := binary.Uvarint(b); n > 0 && size <= uint64(len(b)-n) {
			return wire{bytes: b[n : n+int(size)]}, n + int(size)
		}
	}
	return wire{}, -1
}
