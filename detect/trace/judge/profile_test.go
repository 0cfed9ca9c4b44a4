package judge

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
)

func read(t *testing.T, doc string) trace.Profile {
	t.Helper()
	p, err := trace.ReadProfile(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProfileNamesWhoIsWaitedFor(t *testing.T) {
	r, err := Profile(read(t, `{"layout":{"tp":1,"dp":4,"pp":2},
		"groups":[
		{"dimension":"dp","ranks":[0,1,2,3],"op":"allreduce","bytes":64,"internode":true,"durations_ms":[[10,10,3,10],[11,10,3,10]]},
		{"dimension":"dp","ranks":[4,5,6,7],"op":"allreduce","bytes":64,"internode":true,"durations_ms":[3,3,3,3.1]}],
		"self_ms":[20,20,40,20,20,20,20,20]}`), peer.Rules{})
	if err != nil || len(r.Groups) != 1 || len(r.Ranks) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	g := r.Groups[0]
	if !g.Computation ||
		g.Communication ||
		g.TransferMs != 3 ||
		g.WaitMs != 15 ||
		!slices.Equal(g.Awaited, []falcon.Rank{2}) {
		t.Errorf("%+v", g)
	}
	k := r.Ranks[0]
	if k.Rank != 2 || k.Ratio != 2 || k.BaseMs != 20 || k.Peers != 3 || !k.Awaited {
		t.Errorf("%+v", k)
	}
}

func TestProfileComparesALoneGroupWithItsPast(t *testing.T) {
	const group = `{"dimension":"tp","ranks":[0,1],"op":"allreduce","bytes":64,"durations_ms":[%,%]}`
	doc := func(now, before string) string {
		d := `{"layout":{"tp":2,"dp":1,"pp":1},"groups":[` + strings.ReplaceAll(group, "%", now) + `]`
		if before != "" {
			d += `,"healthy":{"groups":[` + strings.ReplaceAll(group, "%", before) + `]}`
		}
		return d + `}`
	}
	for in, want := range map[string]int{doc("5", ""): 0, doc("5", "4"): 1, doc("4.3", "4"): 0} {
		r, err := Profile(read(t, in), peer.Rules{})
		if err != nil ||
			len(r.Groups) != want ||
			len(r.Ranks) != 0 ||
			r.Checked.Ranks != 0 {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
		if want == 1 && (r.Groups[0].Basis != peer.ByOwn || !r.Groups[0].Communication) {
			t.Errorf("%+v", r.Groups[0])
		}
	}
}

func TestProfileJudgesReceives(t *testing.T) {
	var groups []string
	for dp, ms := range []string{"1", "1.02", "5", "0.98"} {
		groups = append(groups,
			`{"dimension":"pp","ranks":[`+
				string(rune('0'+dp))+
				`,`+
				string(rune('4'+dp))+
				`],"op":"send","bytes":9,"internode":true,"durations_ms":[0.1,`+
				ms+
				`]}`,
		)
	}
	r, err := Profile(
		read(t, `{"layout":{"tp":1,"dp":4,"pp":2},"groups":[`+strings.Join(groups, ",")+`]}`),
		peer.Rules{},
	)
	if err != nil ||
		len(r.Pairs) != 1 ||
		r.Pairs[0].From != 2 ||
		r.Pairs[0].To != 6 ||
		r.Pairs[0].RecvMs != 5 ||
		len(r.Ranks) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestProfileRefusesContradictoryNodes(t *testing.T) {
	_, err := Profile(
		read(t, `{"layout":{"tp":2,"dp":1,"pp":1},"groups":[
		{"dimension":"tp","ranks":[0,1],"op":"allreduce","durations_ms":[1,1]},
		{"dimension":"tp","ranks":[0,1],"op":"allgather","internode":true,"durations_ms":[1,1]}]}`),
		peer.Rules{},
	)
	if err == nil || !strings.Contains(err.Error(), "group 1 is marked as crossing nodes") {
		t.Error(err)
	}
}

// TestProfileAgreesWithTheRuleSpelledOut checks random windows of four equal
// DP groups against the rules written out one by one.
func TestProfileAgreesWithTheRuleSpelledOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	for range 300 {
		p := trace.Profile{
			Layout: falcon.Layout{TP: 1, DP: 4, PP: 4},
			SelfMs: make([]float64, 16),
		}
		for i := range p.SelfMs {
			p.SelfMs[i] = 10 * (1 + 0.2*rng.Float64())
		}
		for stage := range 4 {
			g := trace.ProfileGroup{
				Dimension: falcon.DimDP,
				Op:        falcon.OpAllReduce,
				Bytes:     1,
				Internode: true,
			}
			call := make([]float64, 4)
			for d := range 4 {
				g.Ranks = append(g.Ranks, falcon.Rank(4*stage+d))
				call[d] = 1 + 0.3*rng.Float64() + float64(rng.IntN(2))*rng.Float64()*3
			}
			g.Calls = [][]float64{call}
			p.Groups = append(p.Groups, g)
		}
		r, err := Profile(p, peer.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range p.Groups {
			slow, waits := naiveGroup(p.Groups, i)
			at := slices.IndexFunc(r.Groups, func(f GroupFinding) bool {
				return f.Ranks[0] == g.Ranks[0]
			})
			if (at >= 0) != (slow || waits) ||
				at >= 0 && (r.Groups[at].Communication != slow || r.Groups[at].Computation != waits) {
				t.Fatalf("group %d: want slow %v waits %v, got %+v", i, slow, waits, r.Groups)
			}
		}
		for rank := range 16 {
			want := naiveRank(p.SelfMs, rank)
			got := slices.ContainsFunc(r.Ranks, func(f RankFinding) bool {
				return int(f.Rank) == rank
			})
			if got != want {
				t.Fatalf("rank %d: %v, want %v in %v", rank, got, want, p.SelfMs)
			}
		}
	}
}

func naiveGroup(groups []trace.ProfileGroup, i int) (slow, waits bool) {
	var others []float64
	for k, g := range groups {
		if k != i {
			others = append(others, slices.Min(g.Calls[0]))
		}
	}
	slices.Sort(others)
	transfer := slices.Min(groups[i].Calls[0])
	return transfer > 1.1*others[1], slices.Max(groups[i].Calls[0])-transfer > 2*transfer
}

func naiveRank(self []float64, rank int) bool {
	var peers []float64
	for d := range 4 {
		if q := rank/4*4 + d; q != rank {
			peers = append(peers, self[q])
		}
	}
	slices.Sort(peers)
	return self[rank] > 1.1*peers[1]
}

// FuzzProfile judges all input that decodes.
func FuzzProfile(f *testing.F) {
	f.Add(`{"layout":{"tp":1,"dp":2,"pp":1},"self_ms":[1,2],"groups":[{"dimension":"dp","ranks":[0,1],"op":"send","bytes":8,"durations_ms":[[1,2]]}],"healthy":{"self_ms":[1,1]}}`)
	f.Fuzz(func(t *testing.T, in string) {
		p, err := trace.ReadProfile(strings.NewReader(in))
		if err != nil || p.Layout.World() > 1024 {
			return
		}
		checkNumbers(t, func() (any, error) {
			return Profile(p, peer.Rules{})
		})
	})
}
