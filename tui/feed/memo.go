package feed

import "sync"

// Memo holds what is derived from a snapshot, once for all sessions that share it.
// The zero Memo is empty.
type Memo struct {
	once  sync.Once
	value any
}

// Get is what derive has returned, the first time that anybody asked. All
// callers must mean the same by it. A nil Memo remembers nothing.
func (m *Memo) Get(derive func() any) any {
	if m == nil {
		return derive()
	}
	m.once.Do(func() { m.value = derive() })
	return m.value
}
