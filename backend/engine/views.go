package engine

import (
	"sync/atomic"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
)

// stateViews builds what consoles see: one snapshot for all of them, when
// something has changed and somebody looks, and the views of single things on
// request. It changes nothing else.
type stateViews struct {
	*shared

	id          string // of the engine
	status      *jobStatus
	intake      *sampleIntake
	readings    *deviceReadings
	describer   *jobDescriber
	validations *validationQueue
	links       *linkWatch
	waits       *heldRound
	rejoinAcks  map[falcon.Rank]rejoinAck

	snapshot atomic.Pointer[State]
	asked    atomic.Int64 // Unix ns of the last Snapshot call; the loop reads it
	columns  columns.Log  // of pictures that consoles pulled; from any goroutine

	dirty     bool // the snapshot is behind
	version   uint64
	built     time.Time
	buildCost time.Duration // what the last snapshot took of the loop's time
	levels    []shown       // by rank
}
