package engine

import (
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
)

// decidedRound is what one Ready of all machines leads to.
type decidedRound struct {
	records  []pendingRecord
	orders   []orderRecord
	windows  map[uint64]detect.ProfileRequest // by command id
	tests    []validate.Command
	sends    []func()
	fences   []fenceRecord
	commands []*nodeCommand // of recoveries
	steps    []func()       // inputs that one machine has for the other
}
