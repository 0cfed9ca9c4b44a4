package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
)

// sameChoices reports whether two states of a rank show the same choices of NCCL.
func sameChoices(a, b *falconv1.RankState) bool {
	return slices.EqualFunc(a.GetComms(), b.GetComms(), func(x, y *falconv1.Comm) bool {
		return slices.Equal(x.GetChoices(), y.GetChoices())
	})
}

// cleanChoices leaves out what this engine does not know.
func cleanChoices(c falcon.Choices) falcon.Choices {
	for op := range c {
		x := &c[op]
		if x.Algorithm > falcon.AlgorithmPAT ||
			x.Protocol > falcon.ProtocolSimple ||
			x.Source > falcon.ChoiceProfiler {
			*x = falcon.Choice{}
		}
	}
	return c
}

// refreshChoices has the detector know what ranks newly show of NCCL's choices: a profile window
// shows more, and the job is not described again for it.
func (d *jobDescriber) refreshChoices(now time.Time) {
	if d.comms == nil ||
		d.choicesAt == d.job.choices ||
		!d.job.complete() ||
		d.cluster.unsettledRank() >= 0 {
		return
	}
	d.comms, d.choicesAt = d.job.comms(d.state.job.Layout), d.job.choices
	d.det.Step(now, detect.Chosen{Comms: d.comms})
}
