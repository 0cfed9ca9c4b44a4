package engine

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery"
)

// recoveryDriver carries out what the recovery machine wants, and feeds it with
// what nodes answer. Commands keep their ids over any restart of the engine.
type recoveryDriver struct {
	*shared

	arbiter *arbiter
	intake  *sampleIntake
	links   *linkWatch
	restart *restartDriver

	rejoinAcks  map[falcon.Rank]rejoinAck
	refusedTold map[string]bool // of whom it was logged that they are fenced
	paced       recovery.Pace   // as the machine knows it
	pacedAt     time.Time

	tables    tableBook
	tableSent bool           // this start has brought the job's rank table to its nodes
	resend    []*nodeCommand // commands that are sent again in another form
}
