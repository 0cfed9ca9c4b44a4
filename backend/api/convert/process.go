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
	return &falconv1.Capabilities{
		Park:       c.Park,
		Split:      c.Split,
		Place:      c.Place,
		Checkpoint: c.Checkpoint,
		Versions:   clamped(c.Versions),
	}
}

// CanFromProto is the reverse.
func CanFromProto(p *falconv1.Capabilities) falcon.Can {
	if p == nil {
		return falcon.Can{}
	}
	return falcon.Can{
		Declared:   true,
		Park:       p.GetPark(),
		Split:      p.GetSplit(),
		Place:      p.GetPlace(),
		Checkpoint: p.GetCheckpoint(),
		Versions:   int(p.GetVersions()),
	}
}

// RaisedToProto is the error that a program ends with; nil where none was reported.
func RaisedToProto(r falcon.Raised) *falconv1.Raised {
	if r.IsZero() {
		return nil
	}
	return &falconv1.Raised{
		Kind:    r.Kind,
		Where:   r.Where,
		Text:    r.Text,
		OfPeers: r.OfPeers,
	}
}

// RaisedFromProto is the reverse.
func RaisedFromProto(p *falconv1.Raised) falcon.Raised {
	return falcon.Raised{
		Kind:    p.GetKind(),
		Where:   p.GetWhere(),
		Text:    p.GetText(),
		OfPeers: p.GetOfPeers(),
	}
}

// EndingOf is how a process ended, as its state says.
func EndingOf(s *falconv1.RankState) falcon.Ending {
	status, signal, known := falconv1.ReadExit(s.GetExit())
	e := falcon.Ending{
		Known:  known,
		Raised: RaisedFromProto(s.GetRaised()),
		Said:   s.GetSaid(),
	}
	if known {
		e.Status, e.Signal = status, signal
	}
	return e
}
