package mitigate

import (
	"errors"
	"testing"

	"github.com/failslow/falcon"
)

// No rung helps against what the job itself does, whoever of its ranks waits.
func TestNoRungHelpsAgainstTheJobsOwnWork(t *testing.T) {
	for _, reason := range falcon.Reasons() {
		s := &incidentState{incident: falcon.Incident{
			ID:    "INC-0001",
			State: falcon.IncidentLocated,
			Verdict: falcon.Verdict{
				Cause:      falcon.CauseNotHardware,
				Reason:     reason,
				Ranks:      []falcon.Rank{2},
				Confidence: 0.9,
			},
		}}
		for _, r := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
			if err := causeHelped(s, r); !errors.Is(err, errOwnWork) {
				t.Errorf("%s, %s: %v", reason, r, err)
			}
		}
	}
}
