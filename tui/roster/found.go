package roster

import "sync"

// found remembers which ranks were sought in a roster, by what.
type found struct {
	sync.Mutex
	of map[string][]int32
}

// foundMax bounds what is remembered: consoles that share a roster seldom seek
// by more than one or two filters at once.
const foundMax = 4

// Remember is what seek has returned the first time that anybody asked by this
// text. All callers must mean the same by it; nobody may modify the list.
func (t *Roster) Remember(text string, seek func() []int32) []int32 {
	t.found.Lock()
	defer t.found.Unlock()
	if list, ok := t.found.of[text]; ok {
		return list
	}
	if t.found.of == nil || len(t.found.of) >= foundMax {
		t.found.of = map[string][]int32{}
	}
	list := seek()
	t.found.of[text] = list
	return list
}
