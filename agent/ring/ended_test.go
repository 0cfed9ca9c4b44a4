package ring

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
)

// ended is an end record as the hook writes it.
func ended(change func(image)) []byte {
	m := make(image, endedBytes)
	m.writeUint64(endMagic, endedMagic)
	m.writeUint32(endBytes, endedBytes)
	m.writeUint32(endPID, 77)
	m.writeUint64(endStartMonoNs, 5e9)
	m.writeUint64(endEndedNs, 9e9)
	m.writeUint32(endRank, 3)
	m.writeUint32(endWorld, 8)
	m.writeUint64(endGeneration, 4)
	copy(m[endJob:], "gpt")
	copy(m[endDevice:], "n1.g0")
	if change != nil {
		change(m)
	}
	sum := fnv.New64a()
	sum.Write(m[:endCheck])
	binary.LittleEndian.PutUint64(m[endCheck:], sum.Sum64())
	return m
}

func TestDecodeEnded(t *testing.T) {
	e, err := DecodeEnded(ended(nil))
	if err != nil ||
		e.Header.PID != 77 ||
		e.Rank != 3 ||
		e.Header.World != 8 ||
		e.Header.Device != "n1.g0" ||
		e.Generation != 4 ||
		e.End != (End{AtNs: 9e9}) {
		t.Fatalf("%+v, %v", e, err)
	}
	moved, err := DecodeEnded(ended(func(m image) {
		m.writeUint64(endPlaceOrder, 12)
		m.writeUint32(endPlaceRank, 6)
		m.writeUint32(endEndedStatus, 1<<20)
	}))
	if err != nil ||
		moved.Rank != 6 ||
		moved.Place != 12 ||
		moved.End.Status != -1 {
		t.Fatalf("%+v, %v", moved, err)
	}
}

func TestDecodeEndedRefuses(t *testing.T) {
	flipped := ended(nil)
	flipped[endRank]++
	for name, b := range map[string][]byte{
		"short":        ended(nil)[:endedBytes-1],
		"long":         append(ended(nil), 0),
		"empty":        nil,
		"damaged":      flipped,
		"another kind": ended(func(m image) { m.writeUint64(endMagic, shmMagic) }),
		"no end":       ended(func(m image) { m.writeUint64(endEndedNs, 0) }),
		"no process":   ended(func(m image) { m.writeUint32(endPID, 0) }),
		"no rank":      ended(func(m image) { m.writeUint32(endRank, 1<<30) }),
	} {
		if e, err := DecodeEnded(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestEndedIn(t *testing.T) {
	dir := t.TempDir()
	for file, b := range map[string][]byte{
		"falcon.gpt.77.ended":     ended(nil),
		"falcon.gpt.78.ended":     ended(nil),
		"falcon.gpt.79.ended":     nil,
		"falcon.other.77.ended":   ended(nil),
		"falcon.gpt.77.ended.new": ended(nil),
		"falcon.gpt.77":           nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, bad, err := EndedIn(dir, "gpt")
	if err != nil || len(found) != 1 || found[0].Header.PID != 77 || len(bad) != 2 {
		t.Fatalf("%+v, %v, %v", found, bad, err)
	}
	if err := found[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if found, _, _ = EndedIn(dir, "gpt"); len(found) != 0 {
		t.Fatal("it is still there")
	}
}

func FuzzDecodeEnded(f *testing.F) {
	f.Add(ended(nil))
	f.Add([]byte("FALCEND1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEnded(b)
		if err == nil &&
			(!e.End.InOrder() || e.Header.PID < 1 || e.Rank < -1 || e.End.Status > 255) {
			t.Fatalf("%+v", e)
		}
	})
}
