package engine

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// arrival is one thing from the fleet.
type arrival struct {
	session *fleet.Session
	what    arrivalKind
	frame   frame
	at      time.Time // it came
}

type arrivalKind uint8

const (
	arriveAttach arrivalKind = iota
	arriveFrame
	arriveDetach
)

// frame is what an agent sent.
type frame = *falconv1.AgentFrame
