package phrase

import (
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// What films of whole incidents have shown to be unclear or untrue.
func TestStatementsAtTheirEdges(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	due := &falconv1.Action{
		Rung:     "S4",
		Incident: "INC-0002",
		State:    "proposed",
	}
	kept := &falconv1.Action{
		Rung:     "S4",
		Incident: "INC-0001",
		State:    "kept",
	}
	moved := &falconv1.Action{
		Rung:     "S2",
		Incident: "INC-0001",
		State:    "kept",
	}
	stopped := &falconv1.Recovery{
		Id:           "REC-0001",
		State:        "proposed",
		Together:     "stopped",
		LostGpuHours: 3,
	}
	for _, c := range []struct {
		s         statements.Statement
		want, not string
	}{
		{
			statements.Statement{Kind: statements.Pending, Action: due, Until: now},
			"is due, and goes out when nothing else",
			"ACTS IN",
		},
		{
			statements.Statement{
				Kind:   statements.Pending,
				Action: due,
				Until:  now.Add(time.Second),
			},
			"ACTS IN 1 s",
			"is due",
		},
		{
			statements.Statement{Kind: statements.InForce, Action: kept},
			"S4 for INC-0001 carried out, kept",
			"in force",
		},
		{
			statements.Statement{Kind: statements.InForce, Action: moved},
			"S2 for INC-0001 in force, kept",
			"carried out",
		},
		{
			statements.Statement{Kind: statements.Learning, Job: &falconv1.Job{Iteration: -1}},
			"learning the healthy iteration time",
			"—",
		},
		{
			statements.Statement{
				Kind: statements.Running,
				Job:  &falconv1.Job{IterationMs: 140, BaselineMs: 140, SlowerIterations: 2},
			},
			"; the newest 2 were slower",
			"newest was",
		},
		{
			statements.Statement{
				Kind: statements.Running,
				Job:  &falconv1.Job{IterationMs: 140, BaselineMs: 140},
			},
			"running: 140 ms",
			"slower",
		},
		{
			statements.Statement{Kind: statements.Recovery, Who: statements.Approver, Recovery: stopped},
			"start the job again (approve)",
			"GPU-h",
		},
	} {
		got := Statement(&c.s, now)
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%q has to say %q and not %q", got, c.want, c.not)
		}
	}
}
