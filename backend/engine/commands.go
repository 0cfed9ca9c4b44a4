package engine

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
)

// Classes of commands in the outbox, in the order in which a node is sent them.
const (
	fenceCommand outbox.Class = iota
	recoveryCommand
	testCommand   // of a validation: releases come before what the job is given next
	stopCommand   // of a restart
	launchCommand // of a restart
	orderCommand
	windowCommand
)

// answerer is what a command is about that no other part of the engine waits for: it takes the
// nodes' answers itself.
type answerer interface {
	onAnswer(e *Engine, now time.Time, n falcon.Node, in *falconv1.CommandResult)
}

// commandLife is how long a command may take to arrive, where its recovery's state
// allows no longer.
const commandLife = time.Minute
