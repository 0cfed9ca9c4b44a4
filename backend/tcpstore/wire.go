package tcpstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of what a client may send; those of PyTorch's own server, whose newer kind takes keys of
// 8 KiB at most, and whose older one takes longer ones.
const (
	MaxKey     = 64 << 10  // bytes of a key
	MaxValue   = 8 << 20   // bytes of a value
	MaxPerCall = 128 << 10 // keys in one request
	MaxRequest = 16 << 20  // bytes of keys and values in one request: a compare-and-set of two whole values
)

// magic is what newer clients begin with, after the opcode 0.
const magic = 0x3C85F7CE

// chunk is how much of a value is believed at once: a length alone buys no
// memory.
const chunk = 64 << 10

// ErrProtocol marks what no PyTorch client sends.
var ErrProtocol = errors.New("tcpstore: protocol")

// Layout says which numbers the requests have on the wire.
type Layout int

// The two layouts that PyTorch has released.
const (
	Legacy  Layout = iota // PyTorch 1.13 and 2.0: no greeting, SET is 0
	Current               // since: VALIDATE with a magic number comes first, SET is 1
)

func (l Layout) String() string {
	return [...]string{"legacy", "current"}[l]
}

// op is a request's kind, whatever its number.
type op uint8

const (
	opNone op = iota
	opSet
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opPush
	opPop
	opLen
	opListKeys
	opWatch
)

// opcodes of each layout by number.
var opcodes = [...][]op{
	Legacy: {
		opSet, opCompareSet, opGet, opAdd, opCheck, opWait, opNumKeys, opWatch, opDelete, opAppend,
		opMultiGet, opMultiSet,
	},
	Current: {
		opNone, opSet, opCompareSet, opGet, opAdd, opCheck, opWait, opNumKeys, opDelete, opAppend,
		opMultiGet, opMultiSet, opCancelWait, opPing, opPush, opPop, opLen, opListKeys,
	},
}

// request is one decoded request; which fields count depends on op.
type request struct {
	op     op
	key    string
	value  []byte // new value
	expect []byte // of a compare-and-set
	delta  int64
	nonce  uint32
	keys   []string
	values [][]byte
}

// decoder reads requests. It allocates no more than twice what has arrived, and
// a chunk.
type decoder struct {
	r      *bufio.Reader
	layout Layout
	left   int  // bytes that the present request may still have
	amid   bool // a request has begun and is not complete

	charge  func(n int, big bool) error // pays for memory of a request; nil = it is free
	held    int                         // memory of the present request
	charged int                         // what was paid for it
}

// Charges of a request: the first bytes are the connection's own, and then it
// pays in steps that grow with it, so that many keys don't mean many charges.
const (
	freeHeld  = 1 << 10
	chargeMin = 4 << 10
)

// hold pays for n more bytes of memory.
func (d *decoder) hold(n int) error {
	d.held += n
	need := d.held - freeHeld - d.charged
	if d.charge == nil || need <= 0 {
		return nil
	}
	step := max(need, min(max(d.charged, chargeMin), chunk))
	if err := d.charge(step, d.held > bigFrom); err != nil {
		return err
	}
	d.charged += step
	return nil
}

// greet finds the layout by the first message. A legacy client's first message
// may be a SET, whose opcode is 0 too: the magic number read as the length of
// its key would be far over the limit, so that the two can't be confused.
func (d *decoder) greet() error {
	first, err := d.r.Peek(1)
	if err != nil {
		return err
	}
	if first[0] != 0 {
		d.layout = Legacy
		return nil
	}
	head, err := d.r.Peek(5)
	if err != nil {
		return cutShort(err)
	}
	if binary.LittleEndian.Uint32(head[1:]) != magic {
		d.layout = Legacy
		return nil
	}
	d.layout = Current
	_, err = d.r.Discard(5)
	return err
}

// next reads one request; io.EOF means that the client left between two.
func (d *decoder) next() (request, error) {
	code, err := d.r.ReadByte()
	if err != nil {
		return request{}, err
	}
	d.left = MaxRequest
	d.held = 0
	d.charged = 0
	d.amid = true
	q := request{op: d.opOf(code)}
	if err := d.body(&q); err != nil {
		return request{}, cutShort(err)
	}
	d.amid = false
	if q.op == opNone {
		return request{}, fmt.Errorf("%w: opcode %d is none of the %s layout", ErrProtocol, code, d.layout)
	}
	return q, nil
}

func (d *decoder) opOf(code byte) op {
	if codes := opcodes[d.layout]; int(code) < len(codes) {
		return codes[code]
	}
	return opNone
}

func (d *decoder) body(q *request) (err error) {
	switch q.op {
	case opSet, opAppend, opPush:
		if q.key, err = d.name(); err == nil {
			q.value, err = d.payload()
		}
	case opCompareSet:
		return d.compareSet(q)
	case opGet, opDelete, opPop, opLen, opWatch:
		q.key, err = d.name()
	case opAdd:
		if q.key, err = d.name(); err == nil {
			q.delta, err = d.int64()
		}
	case opCheck, opWait, opMultiGet:
		err = d.many(q, false)
	case opMultiSet:
		err = d.many(q, true)
	case opPing:
		err = binary.Read(d.r, binary.LittleEndian, &q.nonce)
	}
	return err
}

func (d *decoder) compareSet(q *request) (err error) {
	if q.key, err = d.name(); err != nil {
		return err
	}
	if q.expect, err = d.payload(); err != nil {
		return err
	}
	q.value, err = d.payload()
	return err
}

func (d *decoder) many(q *request, values bool) error {
	n, err := d.length(MaxPerCall, "keys in one request")
	if err != nil {
		return err
	}
	for range n {
		k, err := d.name()
		if err != nil {
			return err
		}
		q.keys = append(q.keys, k)
		if !values {
			continue
		}
		v, err := d.payload()
		if err != nil {
			return err
		}
		q.values = append(q.values, v)
	}
	return nil
}

func (d *decoder) int64() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(d.r, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// length reads a count and charges eight bytes for it, so that empty keys are
// bounded too.
func (d *decoder) length(limit int, what string) (int, error) {
	n, err := d.int64()
	if err != nil {
		return 0, err
	}
	if uint64(n) > uint64(limit) {
		return 0, fmt.Errorf("%w: %d %s, %d at most", ErrProtocol, uint64(n), what, limit)
	}
	d.left -= 8
	return int(n), nil
}

func (d *decoder) name() (string, error) {
	b, err := d.bytes(MaxKey, "bytes in a key")
	return string(b), err
}

func (d *decoder) payload() ([]byte, error) {
	return d.bytes(MaxValue, "bytes in a value")
}

func (d *decoder) bytes(limit int, what string) ([]byte, error) {
	n, err := d.length(limit, what)
	if err != nil {
		return nil, err
	}
	if d.left -= n; d.left < 0 {
		return nil, fmt.Errorf("%w: a request has more than %d bytes", ErrProtocol, MaxRequest)
	}
	if err := d.hold(itemCost); err != nil {
		return nil, err
	}
	return d.fill(n)
}

// fill reads n bytes into room that doubles as they come.
func (d *decoder) fill(n int) ([]byte, error) {
	var b []byte
	for at := 0; at < n; at = len(b) {
		size := min(n, max(chunk, 2*at))
		if err := d.hold(size); err != nil {
			return nil, err
		}
		more := make([]byte, size)
		copy(more, b)
		b = more
		d.held -= at
		if _, err := io.ReadFull(d.r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// cutShort tells an end in the middle of a message from one between two.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
