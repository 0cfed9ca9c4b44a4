package ring

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unsafe"
)

// image is the mapped file. Every access is atomic, since another process
// writes it, and checked against the length by the slice expression: offsets
// come only from a validated header and bounded indexes, so that a failing
// check is a defect here, not a hostile file.
type image []byte

func (m image) pointer64(off uint64) *uint64 {
	b := m[off : off+8 : off+8]
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b)))
}

func (m image) pointer32(off uint64) *uint32 {
	b := m[off : off+4 : off+4]
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(b)))
}

func (m image) readUint64(off uint64) uint64 {
	return atomic.LoadUint64(m.pointer64(off))
}

func (m image) readInt64(off uint64) int64 {
	return int64(m.readUint64(off))
}

func (m image) readUint32(off uint64) uint32 {
	return atomic.LoadUint32(m.pointer32(off))
}

func (m image) readInt32(off uint64) int32 {
	return int32(m.readUint32(off))
}

func (m image) writeUint64(off uint64, v uint64) {
	atomic.StoreUint64(m.pointer64(off), v)
}

func (m image) writeUint32(off uint64, v uint32) {
	atomic.StoreUint32(m.pointer32(off), v)
}

// readConsistent reads fields that another process writes under the sequence at seq;
// false while it writes them.
func (m image) readConsistent(seq uint64, read func()) bool {
	for range seqlockTries {
		before := m.readUint64(seq)
		read()
		if before%2 == 0 && m.readUint64(seq) == before {
			return true
		}
	}
	return false
}

func (m image) copyName(off uint64) [8]uint64 {
	var w [8]uint64
	for i := range w {
		w[i] = m.readUint64(off + 8*uint64(i))
	}
	return w
}

// copyBoot reads a boot id; what is none reads as "".
func (m image) copyBoot(off uint64) string {
	var b []byte
	for at := off; at < off+bootBytes; at += 8 {
		b = binary.LittleEndian.AppendUint64(b, m.readUint64(at))
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	if bytes.ContainsFunc(text, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'f')
	}) {
		return ""
	}
	return string(text)
}

// printableName turns a copied, zero-terminated field into printable text: control
// characters and broken UTF-8 never reach a terminal.
func printableName(w [8]uint64) string {
	var b [nameBytes]byte
	for i, v := range w {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	text, _, _ := bytes.Cut(b[:], []byte{0})
	clean := func(r rune) rune {
		if r < ' ' ||
			(r >= 0x7f && r < 0xa0) ||
			r == '�' ||
			(r >= 0x2028 && r <= 0x202e) ||
			(r >= 0x2066 && r <= 0x2069) {
			return '?'
		}
		return r
	}
	return strings.Map(clean, strings.ToValidUTF8(string(text), "?"))
}
