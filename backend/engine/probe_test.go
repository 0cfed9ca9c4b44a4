package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/history"
)

// A sampling job is allowed on idle nodes of an engine for such jobs, one at a time, and
// never where a process runs.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.job.spare()
		b.start()
		for b.job.iteration < 5 {
			b.turn()
		}
		ask := func(q *falconv1.ProbeRequest) error {
			_, err := Probe(context.Background(), b.engine, tester, q)
			return err
		}
		hour := int64(time.Hour)
		refused := func(why string, q *falconv1.ProbeRequest) {
			t.Helper()
			err := ask(q)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), why) {
				t.Errorf("%v: %v, want a refusal with %q", q, err, why)
			}
		}
		one := &falconv1.ProbeRequest{
			Kind:  "a",
			Nodes: []string{"n2"},
			ForNs: hour,
		}
		refused("watches training", one)
		b.inLoop(func() { b.engine.probes.cfg.JobKind = history.ProbeA })
		refused("probe: a", &falconv1.ProbeRequest{
			Kind:  "b",
			Nodes: []string{"n0", "n2"},
			ForNs: hour,
		})
		refused("has no agent", &falconv1.ProbeRequest{
			Kind:  "a",
			Nodes: []string{"n9"},
			ForNs: hour,
		})
		refused("is not idle", &falconv1.ProbeRequest{
			Kind:  "a",
			Nodes: []string{"n0"},
			ForNs: hour,
		})
		refused("still runs", one)
		for _, bad := range []*falconv1.ProbeRequest{
			{Kind: "c", Nodes: []string{"n2"}, ForNs: hour},
			{Kind: "a", ForNs: hour},
			{Kind: "a", Nodes: []string{"n1", "n2"}, ForNs: hour},
			{Kind: "b", Nodes: []string{"n2", "n2"}, ForNs: hour},
			{Kind: "a", Nodes: []string{"n2"}},
			{Kind: "a", Nodes: []string{"n2"}, ForNs: 25 * hour},
		} {
			if err := ask(bad); !errors.Is(err, ErrInvalid) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		b.inLoop(func() { clear(b.engine.job.named) })
		if err := ask(one); err != nil {
			t.Fatal(err)
		}
		refused("tester may run one on n2", one)
		if err := ask(&falconv1.ProbeRequest{End: true}); err != nil {
			t.Fatal(err)
		}
		if err := ask(one); err != nil {
			t.Errorf("after its end: %v", err)
		}
		lines := 0
		b.inLoop(func() {
			for _, line := range b.engine.state.events {
				if line.GetAudit().GetVerb() == "probe" && line.GetAudit().GetAbout() == "n2" {
					lines++
				}
			}
		})
		if lines != 2 {
			t.Errorf("%d audit lines, want 2", lines)
		}
	})
}
