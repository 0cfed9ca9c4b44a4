package iterate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// Bounds of a Tally. A rank beyond them is not described.
const (
	usesMost     = 512  // communicators by operation
	sizesMost    = 256  // different sizes of one of them
	peersMost    = 512  // peers of one of them
	allPeersMost = 8192 // peers of all of them
	steadyAfter  = 3    // iterations alike, before they are described
	forgottenAll = 1024 // iterations that were not, after which no more are counted
)

// Tally sums up what each communicator carries in a steady iteration of one process:
// calls, bytes and peers by operation. It describes an iteration once the number of
// calls of every operation was the same in some iterations in a row, and then counts no
// more until Reset. A call of a known operation and size does not allocate.
type Tally struct {
	now, last map[use]*sum
	free      []*sum
	whole     bool // now began with an iteration
	over      bool // a bound was passed
	peers     int  // of the running iteration
	alike     int  // iterations in a row like last
	tried     int
	report    []falcon.Traffic
}

type use struct {
	comm uint64
	op   falcon.Op
}

// sum is one operation on one communicator in one iteration.
type sum struct {
	calls  int
	bytes  int64
	sizes  map[int64]int
	peers  map[int32]bool
	varied bool // bytes were not the same in all iterations alike
}

// NewTally starts empty.
func NewTally() *Tally {
	return &Tally{now: map[use]*sum{}, last: map[use]*sum{}}
}

// Reset begins again: the communicators are others.
func (t *Tally) Reset() {
	*t = *NewTally()
}

// Traffic is a steady iteration; nil while none was seen.
func (t *Tally) Traffic() []falcon.Traffic { return t.report }

func (t *Tally) done() bool {
	return t.report != nil || t.over || t.tried > forgottenAll
}

// Add counts one call.
func (t *Tally) Add(comm uint64, op falcon.Op, bytes int64, peer int32) {
	if t.done() {
		return
	}
	k := use{comm, op}
	s := t.now[k]
	if s == nil {
		if s = t.newSum(); s == nil {
			t.over = true
			return
		}
		t.now[k] = s
	}
	s.calls++
	s.bytes += bytes
	s.sizes[bytes]++
	if op == falcon.OpSend || op == falcon.OpRecv {
		if !s.peers[peer] {
			t.peers++
		}
		s.peers[peer] = true
	}
	t.over = len(s.sizes) > sizesMost ||
		len(s.peers) > peersMost ||
		t.peers > allPeersMost
}

func (t *Tally) newSum() *sum {
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s
	}
	if len(t.now) >= usesMost {
		return nil
	}
	return &sum{sizes: map[int64]int{}, peers: map[int32]bool{}}
}

// Close ends the running iteration.
func (t *Tally) Close() {
	if t.done() {
		return
	}
	t.tried++
	if !t.whole {
		t.whole = true
		t.clearNow()
		return
	}
	if t.sameCalls() {
		t.alike++
	} else {
		t.alike = 1
	}
	t.now, t.last = t.last, t.now
	t.clearNow()
	if t.alike >= steadyAfter && len(t.last) > 0 {
		t.report = t.describe()
		t.now = nil
		t.last = nil
		t.free = nil
	}
}

func (t *Tally) clearNow() {
	for _, s := range t.now {
		clear(s.sizes)
		clear(s.peers)
		*s = sum{sizes: s.sizes, peers: s.peers}
		t.free = append(t.free, s)
	}
	clear(t.now)
	t.peers = 0
}

// sameCalls reports whether this iteration makes as many calls as the last one, and
// marks what differs in bytes.
func (t *Tally) sameCalls() bool {
	if len(t.now) != len(t.last) {
		return false
	}
	for k, s := range t.now {
		was := t.last[k]
		if was == nil || was.calls != s.calls {
			return false
		}
		s.varied = was.varied || was.bytes != s.bytes
	}
	return true
}

func (t *Tally) describe() []falcon.Traffic {
	out := make([]falcon.Traffic, 0, len(t.last))
	for k, s := range t.last {
		v := falcon.Traffic{
			Comm:  k.comm,
			Op:    k.op,
			Calls: s.calls,
			Bytes: s.bytes,
		}
		for _, n := range s.sizes {
			if v.Alike = max(v.Alike, n); n == 1 {
				v.Single++
			}
		}
		if s.varied {
			v.Alike, v.Single = 0, 0
		}
		for _, p := range slices.Sorted(maps.Keys(s.peers)) {
			v.Peers = append(v.Peers, int(p))
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b falcon.Traffic) int {
		return cmp.Or(cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Op, b.Op))
	})
	return out
}
