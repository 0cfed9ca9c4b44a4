package plain

import (
	"context"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

func TestStoryTellsRecoveries(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	e.Lose(falcon.RecoveryResumed)
	out := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cl := client(t, e)
	go func() { ended <- Run(ctx, cl, out, Options{}) }()
	out.until(t, "watching gpt-lab")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"REC-0001  resumed\n", "fault     process ended on n1.g0 (rank 2)\n",
		"evidence  + rank 2 (process 4713 on n1.g0) ended: signal 9\n",
		"decision  by policy, generation 3, attempt 1\n", "replaced  rank 2 on n1.g0; 7 survivors\n",
		"resume    at iteration 30, 30 was the newest begun; 1 shards from replicas\n",
		"times     detect 41.0 ms, suspend 312 ms, replace 2410 ms, ranktable 12.0 ms, collect 3.1 ms, groups 288 ms, restore 94.0 ms, resume 51.0 ms\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRecoveriesAreToldOldestFirst(t *testing.T) {
	got := strings.Join(
		Recoveries([]*falconv1.Recovery{
			{Id: "REC-0002", State: "failed", ResumeIteration: -1},
			{Id: "REC-0001", State: "resumed", ResumeIteration: -1},
		}),
		"\n",
	)
	if got != "REC-0001  resumed\nREC-0002  failed" {
		t.Errorf("printed as %q", got)
	}
}
