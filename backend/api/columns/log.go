package columns

import (
	"sync"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// held is how many snapshots a Log keeps to tell changes since them. Only
// those that somebody received are kept, so that readers of a few paces find
// theirs.
const held = 4

// Log encodes snapshots for any number of readers, each version and base once.
// It may be used from any goroutine; the zero Log is ready.
type Log struct {
	mu      sync.Mutex
	tables  []*Table                         // oldest first
	version uint64                           // that encoded is of
	encoded map[uint64]*falconv1.RankColumns // by base
}

// Since is the ranks of a snapshot as changes since the one that the reader
// holds, or whole where that is not known any more. It is nil where the ranks
// don't fit columns. The message is shared; nobody may change it.
func (l *Log) Since(known, version uint64, ranks []*falconv1.RankView) *falconv1.RankColumns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.table(version)
	if t == nil {
		if t = l.add(version, ranks); t == nil {
			return nil
		}
	}
	base := l.table(known)
	if base == nil {
		known = 0
	}
	if l.version != version {
		l.version, l.encoded = version, map[uint64]*falconv1.RankColumns{}
	}
	if l.encoded[known] == nil {
		l.encoded[known] = Encode(base, t)
	}
	return l.encoded[known]
}

func (l *Log) table(version uint64) *Table {
	for _, t := range l.tables {
		if t.Version == version {
			return t
		}
	}
	return nil
}

func (l *Log) add(version uint64, ranks []*falconv1.RankView) *Table {
	var prev *Table
	if n := len(l.tables); n > 0 {
		prev = l.tables[n-1]
	}
	t, ok := From(version, ranks, prev)
	if !ok {
		return nil
	}
	if len(l.tables) == held {
		l.tables = append(l.tables[:0:0], l.tables[1:]...)
	}
	l.tables = append(l.tables, t)
	return t
}
