package tcpstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
)

func le(n uint64) []byte {
	return binary.LittleEndian.AppendUint64(nil, n)
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Bytes as PyTorch's clients send them, written by hand from its sources.
func TestLayoutIsDetected(t *testing.T) {
	greeting := []byte{0, 0xCE, 0xF7, 0x85, 0x3C}
	for name, c := range map[string]struct {
		bytes  []byte
		layout Layout
		op     op
		key    string
	}{
		"legacy set":       {cat([]byte{0}, le(1), []byte("k"), le(2), []byte("vv")), Legacy, opSet, "k"},
		"legacy empty set": {cat([]byte{0}, le(0), le(0)), Legacy, opSet, ""},
		"legacy add":       {cat([]byte{3}, le(6), []byte("/init/"), le(1)), Legacy, opAdd, "/init/"},
		"legacy delete":    {cat([]byte{8}, le(1), []byte("k")), Legacy, opDelete, "k"},
		"current set":      {cat(greeting, []byte{1}, le(1), []byte("k"), le(0)), Current, opSet, "k"},
		"current add": {
			cat(greeting, []byte{4}, le(6), []byte("/init/"), le(1)),
			Current,
			opAdd,
			"/init/",
		},
		"current queue len": {cat(greeting, []byte{16}, le(1), []byte("q")), Current, opLen, "q"},
	} {
		d := newDecoder(bytes.NewReader(c.bytes))
		must(t, d.greet())
		want(t, name, d.layout, c.layout)
		q, err := d.next()
		must(t, err)
		want(t, name, q.op, c.op)
		want(t, name, q.key, c.key)
		if _, err := d.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v behind the last request, wants EOF", name, err)
		}
	}
}

func TestCutShort(t *testing.T) {
	whole := cat(
		[]byte{0, 0xCE, 0xF7, 0x85, 0x3C, 2},
		le(1),
		[]byte("k"),
		le(3),
		[]byte("old"),
		le(3),
		[]byte("new"),
	)
	for n := 1; n < len(whole); n++ {
		d := newDecoder(bytes.NewReader(whole[:n]))
		err := d.greet()
		if n == 5 {
			continue // between the greeting and the first request
		}
		if err == nil {
			_, err = d.next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

// A length alone must not buy memory.
func TestLengthIsNotBelieved(t *testing.T) {
	const tries = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range tries {
		d := newDecoder(bytes.NewReader(cat([]byte{0}, le(1), []byte("k"), le(MaxValue))))
		must(t, d.greet())
		if _, err := d.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("a value that never came: %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / tries; each > 4*chunk {
		t.Fatalf("%d bytes were set aside for a value that never came", each)
	}
}

// Any bytes: no panic, every error is one of three kinds, and what is decoded
// is within the limits and the same when encoded again by hand.
func FuzzDecoder(f *testing.F) {
	f.Add(cat([]byte{0}, le(1), []byte("k"), le(2), []byte("vv")))
	f.Add(cat(
		[]byte{0, 0xCE, 0xF7, 0x85, 0x3C, 11},
		le(2),
		le(1),
		[]byte("a"),
		le(0),
		le(1),
		[]byte("b"),
		le(1),
		[]byte("c"),
	))
	f.Add(cat([]byte{0, 0xCE, 0xF7, 0x85, 0x3C, 6}, le(1<<40)))
	f.Add(cat([]byte{5}, le(2), le(1), []byte("a"), le(1), []byte("b"), []byte{6, 9}))
	f.Add(cat([]byte{0, 0xCE, 0xF7, 0x85, 0x3C, 13, 1, 2, 3, 4, 12}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDecoder(bytes.NewReader(b))
		if err := d.greet(); err != nil {
			return
		}
		var again []byte
		if d.layout == Current {
			again = append(again, b[:5]...)
		}
		for {
			q, err := d.next()
			if errors.Is(err, io.EOF) ||
				errors.Is(err, io.ErrUnexpectedEOF) ||
				errors.Is(err, ErrProtocol) {
				break
			}
			must(t, err)
			inLimits(t, q)
			again = append(again, encode(q, d.layout)...)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("decoded %x, was sent %x", again, b)
		}
	})
}

func inLimits(t *testing.T, q request) {
	t.Helper()
	for _, k := range append(q.keys, q.key) {
		if len(k) > MaxKey {
			t.Fatalf("a key of %d bytes", len(k))
		}
	}
	for _, v := range append(q.values, q.value, q.expect) {
		if len(v) > MaxValue {
			t.Fatalf("a value of %d bytes", len(v))
		}
	}
}

// encode is the second implementation: it shares nothing with the client.
func encode(q request, l Layout) []byte {
	b := []byte{byte(bytes.IndexByte(opBytes(l), byte(q.op)))}
	str := func(s string) { b = cat(b, le(uint64(len(s))), []byte(s)) }
	switch q.op {
	case opSet, opAppend, opPush:
		str(q.key)
		str(string(q.value))
	case opCompareSet:
		str(q.key)
		str(string(q.expect))
		str(string(q.value))
	case opAdd:
		str(q.key)
		b = cat(b, le(uint64(q.delta)))
	case opCheck, opWait, opMultiGet, opMultiSet:
		b = cat(b, le(uint64(len(q.keys))))
		for i, k := range q.keys {
			if str(k); q.op == opMultiSet {
				str(string(q.values[i]))
			}
		}
	case opPing:
		b = binary.LittleEndian.AppendUint32(b, q.nonce)
	case opNumKeys, opCancelWait, opListKeys:
	default:
		str(q.key)
	}
	return b
}

func opBytes(l Layout) (b []byte) {
	for _, o := range opcodes[l] {
		b = append(b, byte(o))
	}
	return b
}
