package feed

import (
	"errors"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// unpacker turns columns into tables. It belongs to the pulling goroutine.
type unpacker struct {
	engine string
	table  *columns.Table // nil = none; then the next snapshot must be whole
}

// heldVersion is the version of the columns that changes may be sent against.
func (u *unpacker) heldVersion() uint64 {
	if u.table == nil {
		return 0
	}
	return u.table.Version
}

// unpack takes r's columns out of it. After an error the next snapshot is
// requested whole; again reports whether that is all that is needed.
func (u *unpacker) unpack(r *falconv1.SnapshotReply) (again bool, err error) {
	if r.GetColumns() == nil { // there are no ranks yet
		u.table = nil
		return false, nil
	}
	if u.engine != r.EngineId {
		u.engine = r.EngineId
		u.table = nil
	}
	asked := u.heldVersion()
	t, err := columns.Decode(r.Version, u.table, r.Columns)
	if err != nil {
		u.table = nil
		return asked != 0 || errors.Is(err, columns.ErrBase), err
	}
	u.table, r.Columns = t, nil
	return false, nil
}
