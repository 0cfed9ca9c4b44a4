package engine

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/mesh/meshtest"
)

// generatedJob makes a job of what agents report of a generated one.
func generatedJob(g *meshtest.Job) *job {
	j := newJob()
	for r := range falcon.Rank(g.World) {
		s := &falconv1.RankState{
			Rank:  int32(r),
			Pid:   100 + int32(r),
			Alive: true,
			World: int32(g.World),
		}
		for _, c := range g.Comms[r] {
			s.Comms = append(s.Comms, convert.CommToProto(c))
		}
		for _, t := range g.Traffic[r] {
			s.Traffic = append(s.Traffic, convert.TrafficToProto(t))
		}
		j.setState("n0", s)
	}
	return j
}

// A layout is inferred from what agents report, and not where some of it is not seen.
func TestInferredLayout(t *testing.T) {
	megatron := meshtest.Megatron{
		Model: meshtest.Model{
			Layers:       32,
			Hidden:       4096,
			Sequence:     4096,
			Vocabulary:   32000,
			MicroBatches: 8,
		},
		TP: 2,
		CP: 2,
		DP: 2,
		PP: 2,
	}
	want, err := falcon.ParseMesh("tp=2,cp=2,dp=2,pp=2")
	if err != nil {
		t.Fatal(err)
	}
	j := generatedJob(megatron.Job())
	if !j.complete() || !j.needsInference(jobRecord{}) {
		t.Fatalf("the job is not one to infer: complete %v", j.complete())
	}
	if l, why := j.inferredLayout(); l != falcon.LayoutOf(want) || why != "" {
		t.Errorf("%v: %s", l, why)
	}
	for _, c := range []struct {
		what string
		make func(s *falconv1.RankState)
	}{
		{"one is watched by the hook", func(s *falconv1.RankState) { s.Bound = boundProfiler }},
		{"past the hook", func(s *falconv1.RankState) { s.Unhooked = true }},
		{"from its kernels", func(s *falconv1.RankState) { s.Comms[0].Unseen = 1 }},
		{"one-sided", func(s *falconv1.RankState) { s.Comms[1].Unseen = 4 }},
		{"not known so far", func(s *falconv1.RankState) { s.Traffic = nil }},
		{"more than", func(s *falconv1.RankState) { s.Traffic = make([]*falconv1.Traffic, trafficMost+1) }},
		{"disagree", func(s *falconv1.RankState) { s.Comms[0].Rank = 1 << 30 }},
		{"disagree", func(s *falconv1.RankState) { s.Comms[0].Size = 1 << 30 }},
		{"calls", func(s *falconv1.RankState) { s.Traffic[0].Calls = 1 << 30 }},
	} {
		j := generatedJob(megatron.Job())
		c.make(j.ranks[5].state)
		l, why := j.inferredLayout()
		if l != (falcon.Layout{}) && c.what != "calls" ||
			!strings.Contains(why, c.what) && c.what != "calls" {
			t.Errorf("%s: %v, %q", c.what, l, why)
		}
	}
}

// An adapter that counts context parallel into dp is believed in all but that work can
// be moved.
func TestDeclaredLayoutIsChecked(t *testing.T) {
	g := meshtest.Megatron{
		Model: meshtest.Model{
			Layers:       8,
			Hidden:       1024,
			Sequence:     4096,
			Vocabulary:   32000,
			MicroBatches: 4,
		},
		CP: 4,
		DP: 2,
	}.Job()
	j := generatedJob(g)
	for _, c := range []struct {
		l       falcon.Layout
		refuted bool
	}{{falcon.Layout{TP: 1, DP: 8, PP: 1}, true}, {falcon.Layout{TP: 4, DP: 2, PP: 1}, false}} {
		if why := j.contradiction(c.l); strings.Contains(why, "around a ring") != c.refuted {
			t.Errorf("%v: %q", c.l, why)
		}
	}
	l := falcon.Layout{TP: 1, DP: 8, PP: 1}
	if j.contradiction(l) == "" {
		t.Error("it is not refuted again")
	}
	s := j.ranks[3].state
	j.setState("n0", &falconv1.RankState{
		Rank:  3,
		Pid:   s.Pid,
		Alive: true,
		World: s.World,
		Comms: s.Comms,
	})
	if why := j.contradiction(l); why != "" {
		t.Errorf("it is refuted by what is not known any more: %s", why)
	}
}
