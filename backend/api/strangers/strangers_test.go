package strangers

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

var (
	start = time.Unix(1_700_000_000, 0)
	near  = netip.MustParsePrefix("10.0.0.1/32")
	far   = netip.MustParsePrefix("10.0.0.2/32")
)

// gone reports whether the other end of a pipe was closed.
func gone(t *testing.T, c net.Conn) bool {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

func (r *Room) admit(t *testing.T, from netip.Prefix, at time.Time) (*Stranger, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	s, ok := r.Enter(ours, from, at)
	if !ok {
		return nil, theirs
	}
	return s, theirs
}

func TestSilentOnesMakePlace(t *testing.T) {
	w := NewRoom(4, 2, time.Second)
	first, c := w.admit(t, near, start)
	if second, _ := w.admit(t, near, start); first == nil || second == nil {
		t.Fatal("two of one source have no place")
	}
	third, _ := w.admit(t, near, start)
	if third == nil || !gone(t, c) || w.Len() != 2 {
		t.Errorf("the third of one source: %v, the first is gone: %v, %d wait", third, gone(t, c), w.Len())
	}
	if w.Leave(first) {
		t.Error("the first still owns its connection")
	}
}

// One that speaks is left alone until its grace is over.
func TestSpeakersKeepTheirPlace(t *testing.T) {
	w := NewRoom(4, 2, time.Second)
	for range 2 {
		s, _ := w.admit(t, near, start)
		s.speaks = true
	}
	if s, _ := w.admit(t, near, start.Add(time.Millisecond)); s != nil {
		t.Error("a third of the source took a speaker's place")
	}
	if s, _ := w.admit(t, far, start.Add(time.Millisecond)); s == nil {
		t.Error("another source has no place")
	}
	if s, _ := w.admit(t, near, start.Add(2*time.Second)); s == nil {
		t.Error("a speaker keeps its place for ever")
	}
	if n := w.Len(); n != 3 {
		t.Errorf("%d wait", n)
	}
}

func TestAllSourcesTogetherAreBounded(t *testing.T) {
	w := NewRoom(8, 4, time.Second)
	for i := range 100 {
		w.admit(
			t,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), 32),
			start,
		)
		if w.Len() > 8 || len(w.sources) > 8 {
			t.Fatalf("%d wait from %d sources", w.Len(), len(w.sources))
		}
	}
	if !w.EvictOldest() || w.Len() != 7 {
		t.Errorf("out of descriptors: %d wait", w.Len())
	}
	if w.Close(); w.Len() != 0 || len(w.sources) != 0 || w.EvictOldest() {
		t.Errorf("closed: %d wait", w.Len())
	}
	if s, _ := w.admit(t, near, start); s != nil {
		t.Error("a closed door let one in")
	}
}
