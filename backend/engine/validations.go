package engine

import (
	"time"

	"github.com/failslow/falcon/backend/validate"
)

// validationQueue holds what waits to be tested, begins one validation at a time
// when its moment has come, and ends the wait with a reason otherwise. What an
// operator asked for comes before the detector's requests.
type validationQueue struct {
	*shared

	obstacle func(now time.Time, p pendingAsk) (why string, passing bool)
	released func(now time.Time) // what has made way for a request may go on
	changed  func()              // what consoles see is new

	machine *validate.Machine
	asks    []pendingAsk // of the detector, waiting for their moment
	request *request     // of an operator, waiting for its moment; nil = none
	asking  asking       // who asked for the one in progress
	number  int          // newest that was given out
}
