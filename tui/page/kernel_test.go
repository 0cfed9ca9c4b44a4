package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/overview"
	"github.com/failslow/falcon/tui/page/ranks"
)

// What the kernel of a culprit's node has said stands before all other evidence, and beside the
// rank; what it has said long before, and what other nodes say, does not.
func TestKernelLinesAreEvidence(t *testing.T) {
	now := time.Date(2026, 3, 1, 14, 0, 30, 0, time.UTC)
	snap := job(2, 8, 1) // on n0 and n1
	snap.AtUnixNs = now.UnixNano()
	note := func(age time.Duration, rank int32, device, text string) *falconv1.KernelNote {
		return &falconv1.KernelNote{
			AtUnixNs: now.Add(-age).UnixNano(),
			Kind:     "xid",
			Device:   device,
			Rank:     rank,
			Text:     text,
			Advice:   "Reset it.",
		}
	}
	snap.Nodes = []*falconv1.NodeView{
		{
			Node:   "n0",
			Kernel: []*falconv1.KernelNote{note(time.Minute, 3, "n0.g3", "Xid 13: of another node")},
		},
		{
			Node: "n1",
			Kernel: []*falconv1.KernelNote{
				note(time.Hour, 9, "n1.g1", "Xid 63: an hour ago"),
				note(20*time.Second, 9, "n1.g1", "Xid 79: the GPU has fallen off the bus"),
				note(10*time.Second, -1, "", "a network port went down"),
			},
		},
	}
	snap.Ladder = &falconv1.Ladder{
		Incident: "INC-0001",
		Rungs: []*falconv1.RungView{{
			Rung:       "S1",
			Applicable: true,
			Current:    true,
			BreakEven:  -1,
		}},
	}
	snap.Incidents = []*falconv1.Incident{{
		Id:          "INC-0001",
		State:       "located",
		OnsetUnixNs: now.Add(-time.Minute).UnixNano(),
		HealthyMs:   100,
		SlowMs:      200,
		Verdict: &falconv1.Verdict{
			Cause:    "gpu_degradation",
			Devices:  []string{"n1.g1"},
			Ranks:    []int32{9},
			Evidence: []*falconv1.Evidence{{Kind: "counter", Text: "SM clock 990 MHz"}},
		},
	}}
	s := state(snap)
	for name, p := range map[string]page.Page{"overview": overview.New(), "ladder": ladder.New()} {
		got := strings.Join(strings.Fields(draw(p, s, 160, 50, colorprofile.TrueColor)), " ")
		xid := strings.Index(got,
			"kernel n1.g1, rank 9: Xid 79: the GPU has fallen off the bus, 14:00:10Z. Reset it.")
		counter := strings.Index(got, "SM clock 990")
		if xid < 0 || counter < xid || !strings.Contains(got, "kernel n1: a network port went down") {
			t.Errorf("%s shows\n%s", name, got)
		}
		if strings.Contains(got, "an hour ago") || strings.Contains(got, "of another node") {
			t.Errorf("%s shows what does not belong to the incident:\n%s", name, got)
		}
	}
	s.Select(9)
	if got := draw(
		ranks.New(),
		s,
		160,
		50,
		colorprofile.TrueColor,
	); !strings.Contains(got, "kernel 14:00:10Z: Xid 79: the GPU has fallen off the bus") {
		t.Errorf("the rank's details lack the line:\n%s", got)
	}
}
