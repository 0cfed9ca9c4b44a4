package engine

import (
	"time"

	"github.com/failslow/falcon/backend/outbox"
)

// Classes of commands in the outbox, in the order in which a node is sent them.
const (
	fenceCommand outbox.Class = iota
	recoveryCommand
	stopCommand   // of a restart
	launchCommand // of a restart
	orderCommand
	windowCommand
)

// commandLife is how long a command may take to arrive, where its recovery's state
// allows no longer.
const commandLife = time.Minute
