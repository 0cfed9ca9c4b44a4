package plain

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestRanksThatStayAreSaid(t *testing.T) {
	got := strings.Join(
		incidentLines(
			&falconv1.Incident{
				Id:                "INC-0001",
				State:             "closed",
				RelievedIteration: 61,
			},
			&falconv1.Ladder{Actions: []*falconv1.Action{{
				Id:                "INC-0001/S3/1",
				Rung:              "S3",
				State:             "retained",
				RevertReason:      "the fault has cleared",
				AppliedIteration:  50,
				RevertedIteration: -1,
			}}},
		),
		"\n",
	)
	if !strings.Contains(got,
		"end       S3 (change topology) ended, the ranks stay at their places: the fault has cleared") ||
		strings.Contains(got, "undone") {
		t.Errorf("\n%s", got)
	}
}
