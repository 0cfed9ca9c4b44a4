package columns

import (
	"sync"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// held is how many snapshots a Log keeps to encode changes since them. Only
// those that a reader received are kept, so that readers of a few paces find
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

// Since is a table as changes since the one that the reader holds, or whole where
// that is not known any more. The message is shared and must not be changed.
func (l *Log) Since(known uint64, now *Table) *falconv1.RankColumns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tableOfVersion(now.Version)
	if t == nil {
		t = l.addTable(now)
	}
	base := l.tableOfVersion(known)
	if base == nil {
		known = 0
	}
	if l.version != now.Version {
		l.version = now.Version
		l.encoded = map[uint64]*falconv1.RankColumns{}
	}
	if l.encoded[known] == nil {
		l.encoded[known] = Encode(base, t)
	}
	return l.encoded[known]
}

func (l *Log) tableOfVersion(version uint64) *Table {
	for _, t := range l.tables {
		if t.Version == version {
			return t
		}
	}
	return nil
}

func (l *Log) addTable(now *Table) *Table {
	var prev *Table
	if n := len(l.tables); n > 0 {
		prev = l.tables[n-1]
	}
	if len(l.tables) == held {
		l.tables = append(l.tables[:0:0], l.tables[1:]...)
	}
	l.tables = append(l.tables, now.After(prev))
	return l.tables[len(l.tables)-1]
}
