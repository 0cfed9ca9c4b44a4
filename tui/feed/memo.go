package feed

import (
	"sync"
	"sync/atomic"
)

// Memo holds what is derived from a snapshot, once for all who share it: the
// sessions of a hub do not compute the same tables each. The zero Memo is
// empty.
//
// A memo that follows another also holds what was derived from the newest
// snapshot before, until something is derived from its own: little changes from
// one to the next.
type Memo struct {
	once   sync.Once
	value  atomic.Pointer[any]
	before atomic.Pointer[any]
}

// Get is what derive has returned, the first time that anybody asked. Derive is
// given what was derived before of the same job, or nil. All callers must mean
// the same by it. A nil Memo remembers nothing.
func (m *Memo) Get(derive func(before any) any) any {
	if m == nil {
		return derive(nil)
	}
	m.once.Do(func() {
		var before any
		if b := m.before.Load(); b != nil {
			before = *b
		}
		v := derive(before)
		m.value.Store(&v)
		m.before.Store(nil) // no chain of all that ever was
	})
	return *m.value.Load()
}

// Next is the memo of the snapshot that follows. It never waits for a Get.
func (m *Memo) Next() *Memo {
	out := &Memo{}
	if m == nil {
		return out
	}
	before := m.before.Load() // before value: Get sets value, then clears before
	if v := m.value.Load(); v != nil {
		before = v
	}
	out.before.Store(before)
	return out
}
