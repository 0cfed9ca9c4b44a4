package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of one request; those of the store.
const (
	MaxKey     = 64 << 10
	MaxValue   = 8 << 20
	MaxKeys    = 128 << 10
	MaxRequest = 16 << 20
	maxListed  = 1 << 20  // keys that a store names
	chunk      = 64 << 10 // of a value that is believed before it has come
)

// magic follows the opcode 0 in the first message of newer clients.
const magic = 0x3C85F7CE

// ErrProtocol marks what no client of a TCPStore sends.
var ErrProtocol = errors.New("store: protocol")

// part is one piece of a request behind its opcode.
type part byte

const (
	aKey    part = 'k' // length and bytes
	aValue  part = 'v'
	aNumber part = 'n' // 8 bytes
	aNonce  part = 'p' // 4 bytes
	keys    part = 'K' // a count, then keys
	pairs   part = 'P' // a count, then keys with values
)

// shape is the form of an answer.
type shape byte

const (
	nothing shape = iota
	aByte
	fourBytes
	eightBytes
	aVector  // length and bytes
	vectors  // one vector for each key of the request
	popped   // a count, and a vector unless it is 0
	listed   // a count, and so many vectors
	waiting  // a byte, some time
	canceled // answered here
)

// kind is one request of a layout.
type kind struct {
	parts  string // of part
	answer shape
}

var (
	set      = kind{"kv", nothing}
	compare  = kind{"kvv", aVector}
	get      = kind{"k", aVector}
	add      = kind{"kn", eightBytes}
	check    = kind{"K", aByte}
	wait     = kind{"K", waiting}
	numKeys  = kind{"", eightBytes}
	remove   = kind{"k", eightBytes}
	multiGet = kind{"K", vectors}
	multiSet = kind{"P", nothing}
)

// legacy and current are the requests by opcode: PyTorch 1.13 and 2.0, and since.
// The callbacks of the first (7) are not served.
var (
	legacy = map[byte]kind{
		0:  set,
		1:  compare,
		2:  get,
		3:  add,
		4:  check,
		5:  wait,
		6:  numKeys,
		8:  remove,
		9:  set,
		10: multiGet,
		11: multiSet,
	}
	current = map[byte]kind{
		1:  set,
		2:  compare,
		3:  get,
		4:  add,
		5:  check,
		6:  wait,
		7:  numKeys,
		8:  remove,
		9:  set,
		10: multiGet,
		11: multiSet,
		12: {"", canceled},
		13: {"p", fourBytes},
		14: set,
		15: {"k", popped},
		16: {"k", eightBytes},
		17: {"", listed},
	}
)

// greetingBytes is what a connection of the current layout begins with.
func greetingBytes() []byte {
	return binary.LittleEndian.AppendUint32([]byte{0}, magic)
}

// detectLayout finds the layout by the first message. The magic number can't be the
// length of a key, which a legacy SET would have there.
func detectLayout(r *bufio.Reader) (isCurrent bool, err error) {
	first, err := r.Peek(1)
	if err != nil || first[0] != 0 {
		return false, err
	}
	head, err := r.Peek(5)
	if err != nil || binary.LittleEndian.Uint32(head[1:]) != magic {
		return false, err
	}
	_, err = r.Discard(5)
	return true, err
}

// request is one request as it came.
type request struct {
	kind
	raw  []byte
	keys int
}

// reader takes one request apart just as far as to know where it ends.
type reader struct {
	r    *bufio.Reader
	raw  []byte
	bill *bill // nil = memory is free

	skips   bool   // what does not fit is read all the same, and thrown away
	over    error  // why it is
	scratch []byte // then
}

// readRequest reads one request; io.EOF means that the client left between two.
func readRequest(r *bufio.Reader, layout map[byte]kind, b *bill) (request, error) {
	code, err := r.ReadByte()
	if err != nil {
		return request{}, err
	}
	k, known := layout[code]
	if !known {
		return request{}, fmt.Errorf("%w: opcode %d", ErrProtocol, code)
	}
	d := &reader{r: r, raw: []byte{code}, bill: b}
	q := request{kind: k}
	for _, p := range []byte(k.parts) {
		n, err := d.readPart(part(p))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return request{}, err
		}
		q.keys = max(q.keys, n)
	}
	q.raw = d.raw
	return q, nil
}

func (d *reader) readPart(p part) (keysRead int, err error) {
	switch p {
	case aKey:
		return 1, d.readVector(MaxKey)
	case aValue:
		return 0, d.readVector(MaxValue)
	case aNumber:
		_, err := d.readBytes(8)
		return 0, err
	case aNonce:
		_, err := d.readBytes(4)
		return 0, err
	}
	n, err := d.readLength(MaxKeys)
	for i := 0; i < n && err == nil; i++ {
		if err = d.readVector(MaxKey); err == nil && p == pairs {
			err = d.readVector(MaxValue)
		}
	}
	return n, err
}

func (d *reader) readLength(most uint64) (int, error) {
	b, err := d.readBytes(8)
	if err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(b)
	if n > most {
		return 0, fmt.Errorf("%w: a length of %d, at most %d is possible", ErrProtocol, n, most)
	}
	return int(n), nil
}

func (d *reader) readVector(most uint64) error {
	n, err := d.readLength(most)
	for n > 0 && err == nil {
		k := min(n, chunk)
		_, err = d.readBytes(k)
		n -= k
	}
	return err
}

// readBytes adds n bytes to the request.
func (d *reader) readBytes(n int) ([]byte, error) {
	if len(d.raw)+n > MaxRequest {
		return nil, fmt.Errorf("%w: a request of more than %d bytes", ErrProtocol, MaxRequest)
	}
	if d.over == nil {
		err := d.growFor(n)
		if err != nil && !d.skips {
			return nil, err
		}
		d.over = err
	}
	if d.over != nil {
		return d.discard(n)
	}
	at := len(d.raw)
	d.raw = d.raw[:at+n]
	_, err := io.ReadFull(d.r, d.raw[at:])
	return d.raw[at:], err
}

// discard reads n bytes, a chunk at most, and keeps none.
func (d *reader) discard(n int) ([]byte, error) {
	if d.scratch == nil {
		d.raw = nil
		d.scratch = make([]byte, chunk)
	}
	_, err := io.ReadFull(d.r, d.scratch[:n])
	return d.scratch[:n], err
}

// growFor makes place for n more bytes, twice as much as there was, and pays for it.
func (d *reader) growFor(n int) error {
	need := len(d.raw) + n
	if need <= cap(d.raw) {
		return nil
	}
	size := max(need, min(2*cap(d.raw), MaxRequest))
	if err := d.bill.chargeBytes(size); err != nil { // the old room is not free before it is copied
		return err
	}
	more := make([]byte, len(d.raw), size)
	copy(more, d.raw)
	d.bill.refundBytes(cap(d.raw))
	d.raw = more
	return nil
}

// readAnswer reads what the store answers to a request. One that does not fit in the
// budget is read to its end, as the connection is not its client's alone: ErrFull.
func readAnswer(r *bufio.Reader, q request, b *bill) ([]byte, error) {
	d := &reader{r: r, bill: b, skips: true}
	var err error
	switch q.answer {
	case aByte:
		_, err = d.readBytes(1)
	case fourBytes:
		_, err = d.readBytes(4)
	case eightBytes:
		_, err = d.readBytes(8)
	case aVector:
		err = d.readVector(MaxValue)
	case vectors:
		for i := 0; i < q.keys && err == nil; i++ {
			err = d.readVector(MaxValue)
		}
	case listed:
		var n int
		n, err = d.readLength(maxListed)
		for ; n > 0 && err == nil; n-- {
			err = d.readVector(MaxKey)
		}
	case popped:
		var n []byte
		if n, err = d.readBytes(8); err == nil && binary.LittleEndian.Uint64(n) != 0 {
			err = d.readVector(MaxValue)
		}
	}
	if err == nil {
		err = d.over
	}
	return d.raw, err
}
