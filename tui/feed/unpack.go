package feed

import (
	"errors"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// unpacker turns columns into rank views, and keeps those that have not
// changed from one picture to the next. It belongs to the pulling goroutine.
type unpacker struct {
	engine string
	table  *columns.Table // nil = none; then the next picture must be whole
	views  []*falconv1.RankView
}

// holds is the version of the columns that changes may be sent against.
func (u *unpacker) holds() uint64 {
	if u.table == nil {
		return 0
	}
	return u.table.Version
}

// take puts views in place of r's columns. On an error the next picture is
// asked for whole; again says that this is all that is needed.
func (u *unpacker) take(r *falconv1.SnapshotReply) (again bool, err error) {
	if r.GetColumns() == nil { // the engine sends ranks as they are, or there are none
		u.table, u.views = nil, nil
		return false, nil
	}
	if u.engine != r.EngineId {
		u.engine, u.table = r.EngineId, nil
	}
	asked := u.holds()
	t, err := columns.Decode(r.Version, u.table, r.Columns)
	if err != nil {
		u.table = nil
		return asked != 0 || errors.Is(err, columns.ErrBase), err
	}
	u.views = t.Views(u.table, u.views)
	u.table = t
	r.Ranks, r.Columns = u.views, nil
	return false, nil
}
