package sshserver

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
)

// pasteMax bounds one paste: the library gathers it whole.
const pasteMax = 32 << 10

// The marks around a paste.
var (
	pasteStart = []byte("\x1b[200~")
	pasteEnd   = []byte("\x1b[201~")
)

// Bounds of what comes without a rest. The library gathers a sequence whole,
// looks through it again for every piece that comes, and gives it up only when
// nothing has come for a while.
const (
	burstMax  = 32 << 10
	burstRest = 2 * uv.DefaultEscTimeout
)

// input is what the operator types: it notes when, drops what a paste has
// beyond pasteMax, and rests after bursts. Only one goroutine reads.
type input struct {
	from io.Reader
	now  func() time.Time
	made time.Time
	last atomic.Int64 // when the last byte came, in ns since made: no clock that steps

	burst   int // bytes since the last rest
	pasting bool
	pasted  int
	matched int // bytes seen of the mark that is waited for
}

func newSessionInput(from io.Reader, now func() time.Time) *input {
	return &input{from: from, now: now, made: now()}
}

// idleFor is how long nothing has come.
func (in *input) idleFor() time.Duration {
	return in.now().Sub(in.made) - time.Duration(in.last.Load())
}

// Read reads, never more than is typed by hand or pasted within bounds.
func (in *input) Read(p []byte) (int, error) {
	for {
		asked := in.now()
		n, err := in.from.Read(p)
		if n > 0 {
			in.restAfter(n, in.now().Sub(asked))
			in.last.Store(int64(in.now().Sub(in.made)))
			n = in.siftTyped(p[:n])
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// restAfter lets the library finish a sequence where the client does not.
func (in *input) restAfter(n int, waited time.Duration) {
	if waited >= burstRest {
		in.burst = 0
	}
	if in.burst += n; in.burst >= burstMax {
		in.burst = 0
		time.Sleep(burstRest)
	}
}

// siftTyped moves what is kept to the front of p.
func (in *input) siftTyped(p []byte) int {
	kept := 0
	for _, b := range p {
		over := in.pasting && in.pasted >= pasteMax && in.matched == 0 && b != pasteEnd[0]
		in.stepState(b)
		if over && in.matched == 0 {
			continue
		}
		p[kept] = b
		kept++
	}
	return kept
}

// stepState follows the marks by one byte. Both begin with the escape that occurs
// in them only once, so that a mismatch can begin a mark again.
func (in *input) stepState(b byte) {
	mark := pasteStart
	if in.pasting {
		mark = pasteEnd
		in.pasted++
	}
	switch b {
	case mark[in.matched]:
		in.matched++
	case mark[0]:
		in.matched = 1
	default:
		in.matched = 0
	}
	if in.matched == len(mark) {
		in.pasting = bytes.Equal(mark, pasteStart)
		in.pasted = 0
		in.matched = 0
	}
}
