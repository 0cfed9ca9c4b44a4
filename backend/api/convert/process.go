package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// CanToProto is what a process has declared that it can do; nil where it has declared nothing.
func CanToProto(c falcon.Can) *falconv1.Capabilities {
	if !c.Declared {
		return nil
	}
	return &falconv1.Capabilities{Park: c.Park, Split: c.Split, Place: c.Place, Checkpoint: c.Checkpoint, Versions: clamped(c.Versions)}
}

// CanFromProto is the reverse.
func CanFromProto(p *falconv1.Capabilities) falcon.Can {
	if p == nil {
		return falcon.Can{}
	}
	return falcon.Can{
		Declared: true, Park: p.GetPark(), Split: p.GetSplit(), Place: p.GetPlace(), Checkpoint: p.GetCheckpoint(), Versions: int(p.GetVersions()),
	}
}

// EndingOf is what an exit text tells of an end.
func EndingOf(text string) falcon.Ending {
	status, signal, known := falconv1.ReadExit(text)
	if !known {
		return falcon.Ending{}
	}
	return falcon.Ending{Known: true, Status: status, Signal: signal}
}
