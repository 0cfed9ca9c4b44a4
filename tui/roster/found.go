package roster

import (
	"sync"
	"sync/atomic"
)

// found remembers which ranks were sought in a roster, by what.
type found struct {
	sync.Mutex
	of map[string]*list
}

type list struct {
	once  sync.Once
	known atomic.Bool
	ranks []int32
}

// foundMax bounds what is remembered: consoles that share a roster seldom seek
// by more than a few filters at once.
const foundMax = 8

// Remember is what seek has returned the first time that anybody asked by this
// text. All callers must mean the same by it; the list must not be modified. Who
// asks by another text does not wait for it.
func (t *Roster) Remember(text string, seek func() []int32) []int32 {
	l := t.found.listFor(text)
	l.once.Do(func() {
		l.ranks = seek()
		l.known.Store(true)
	})
	return l.ranks
}

func (f *found) listFor(text string) *list {
	f.Lock()
	defer f.Unlock()
	l := f.of[text]
	if l == nil {
		if f.of == nil || len(f.of) >= foundMax {
			f.of = map[string]*list{}
		}
		l = &list{}
		f.of[text] = l
	}
	return l
}

// Remembers reports whether Remember would neither seek nor wait.
func (t *Roster) Remembers(text string) bool {
	t.found.Lock()
	defer t.found.Unlock()
	l := t.found.of[text]
	return l != nil && l.known.Load()
}
