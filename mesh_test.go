package falcon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// slowMesh is a mesh by the simplest means: a table of every rank's coordinates, and
// the graph of who talks inside a micro-batch.
type slowMesh struct {
	dense, expert []place // by rank
	unit          []int   // by rank: the least rank that it is joined with, within and across stages
}

// place is a rank's coordinates, by the dimension's index in places.
type place [6]int

var places = []falcon.Dimension{"tp", "cp", "ep", "fsdp", "dp", "pp"}

// walk counts through the sizes as an odometer does, the first fastest.
func walk(names []falcon.Dimension, sizes []int) []place {
	out := []place{{}}
	for i := range names { // each is an outer loop around those before
		var next []place
		for k := range sizes[i] {
			for _, at := range out {
				at[slices.Index(places, names[i])] = k
				next = append(next, at)
			}
		}
		out = next
	}
	return out
}

// groupsOf are the sets of ranks that differ along d alone.
func groupsOf(table []place, d falcon.Dimension) [][]falcon.Rank {
	by := map[place][]falcon.Rank{}
	order := []place{}
	for r, at := range table {
		at[slices.Index(places, d)] = 0
		if by[at] == nil {
			order = append(order, at)
		}
		by[at] = append(by[at], falcon.Rank(r))
	}
	out := make([][]falcon.Rank, len(order))
	for i, k := range order {
		out[i] = by[k]
	}
	return out
}

// newSlowMesh takes the sizes as a Megatron user gives them: of dense layers, and where
// ep > 1 of experts, in one order.
func newSlowMesh(order []falcon.Dimension, size map[falcon.Dimension]int) *slowMesh {
	at := func(d falcon.Dimension) int { return max(1, size[d]) }
	var names []falcon.Dimension
	var dense, expert []int
	etp := at(falcon.DimTP)
	if size[falcon.DimETP] > 0 {
		etp = size[falcon.DimETP]
	}
	for _, d := range order {
		names = append(names, d)
		n := at(d)
		x := at(d)
		switch {
		case d == falcon.DimEP:
			n = 1
		case at(falcon.DimEP) == 1:
		case d == falcon.DimTP:
			x = etp
		case d == falcon.DimCP:
			x = 1
		case d == falcon.DimDP && at(falcon.DimFSDP) == 1:
			x = at(falcon.DimTP) * at(falcon.DimCP) * n / etp / at(falcon.DimEP)
		case d == falcon.DimFSDP && n > 1:
			x = at(falcon.DimTP) * at(falcon.DimCP) * n / etp / at(falcon.DimEP)
		}
		dense = append(dense, n)
		expert = append(expert, x)
	}
	m := &slowMesh{dense: walk(names, dense), expert: walk(names, expert)}
	m.unit = make([]int, len(m.dense))
	for r := range m.unit {
		m.unit[r] = r
	}
	for changed := true; changed; {
		changed = false
		for _, table := range [][]place{m.dense, m.expert} {
			for _, d := range []falcon.Dimension{
				falcon.DimTP, falcon.DimCP, falcon.DimEP, falcon.DimFSDP, falcon.DimPP,
			} {
				for _, g := range groupsOf(table, d) {
					least := m.unit[g[0]]
					for _, r := range g {
						least = min(least, m.unit[r])
					}
					for _, r := range g {
						changed = changed || m.unit[r] != least
						m.unit[r] = least
					}
				}
			}
		}
	}
	return m
}

// drawn is a mesh's text with what it was made of.
type drawn struct {
	order []falcon.Dimension
	size  map[falcon.Dimension]int
	text  string
}

func drawMesh(t *rapid.T) drawn {
	order := rapid.SampledFrom([][]falcon.Dimension{
		{"tp", "cp", "ep", "fsdp", "dp", "pp"},
		{"tp", "cp", "ep", "pp", "fsdp", "dp"},
		{"tp", "cp", "pp", "ep", "fsdp", "dp"},
		{"cp", "tp", "ep", "fsdp", "dp", "pp"},
		{"pp", "tp", "cp", "ep", "fsdp", "dp"},
		{"ep", "cp", "tp", "dp", "pp", "fsdp"},
		{"dp", "tp", "cp", "fsdp", "pp", "ep"},
	}).Draw(t, "order")
	d := drawn{order: order, size: map[falcon.Dimension]int{}}
	var text []string
	for _, name := range order {
		d.size[name] = rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 6}).Draw(t, string(name))
		text = append(text, fmt.Sprintf("%s=%d", name, d.size[name]))
	}
	if d.size["ep"] > 1 && rapid.Bool().Draw(t, "has etp") {
		d.size["etp"] = rapid.SampledFrom([]int{1, 2, 3, 4}).Draw(t, "etp")
		// It takes the place of tp among the experts' dimensions.
		text = slices.Insert(
			text,
			slices.Index(order, "tp")+1,
			fmt.Sprintf("etp=%d", d.size["etp"]),
		)
	}
	d.text = strings.Join(text, ",")
	return d
}

// A mesh divides ranks as the slow one does; its units are the parts of the graph of who
// talks inside a micro-batch, no finer and no coarser.
func TestMeshAgainstGraph(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		d := drawMesh(t)
		m, err := falcon.ParseMesh(d.text)
		if err != nil {
			if !errors.Is(err, falcon.ErrMesh) || d.size["ep"] == 1 {
				t.Fatalf("%s: %v", d.text, err)
			}
			return
		}
		if m.World() > 200 {
			return // the graph is slow
		}
		made++
		slow := newSlowMesh(d.order, d.size)
		l := falcon.LayoutOf(m)
		if err := l.Validate(); err != nil || l.World() != len(slow.dense) || m.World() != l.World() {
			t.Fatalf("%s: %v of %d ranks, want %d: %v",
				d.text, l, l.World(), len(slow.dense), err)
		}
		checkUnits(t, d, l, slow)
		for _, name := range []falcon.Dimension{"tp", "cp", "fsdp", "dp", "pp"} {
			checkGroups(t, d.text, l, name, groupsOf(slow.dense, name))
		}
		if d.size["ep"] > 1 && l.Mesh != (falcon.Mesh{}) {
			checkGroups(t, d.text, l, "ep", groupsOf(slow.expert, "ep"))
			checkGroups(t, d.text, l, "etp", groupsOf(slow.expert, "tp"))
			if d.size["fsdp"] == 1 {
				checkGroups(t, d.text, l, "edp", groupsOf(slow.expert, "dp"))
			}
		}
		if again, err := falcon.ParseMesh(m.String()); m.String() != "" && (err != nil || again != m) {
			t.Fatalf("%s is written %s: %v", d.text, m, err)
		}
	})
	t.Logf("%d meshes", made)
	if made == 0 {
		t.Error("no mesh was made")
	}
}

func checkUnits(t *rapid.T, d drawn, l falcon.Layout, slow *slowMesh) {
	numbers := falcon.Layout{TP: l.TP, DP: l.DP, PP: l.PP}
	alike := true
	for r := range falcon.Rank(l.World()) {
		alike = alike && numbers.Coord(r) == l.Coord(r)
	}
	if l.Usual() && !alike {
		t.Fatalf("%s: tp %d, dp %d and pp %d do not say which ranks are where", d.text, l.TP, l.DP, l.PP)
	}
	seen := map[falcon.Coord]bool{}
	units := map[int]int{}
	for r := range falcon.Rank(l.World()) {
		c := l.Coord(r)
		if seen[c] ||
			l.RankOf(c) != r ||
			c.PP != slow.dense[r][5] ||
			c.TP >= l.TP ||
			c.DP >= l.DP ||
			c.PP >= l.PP {
			t.Fatalf("%s: rank %d is at %v, and there is rank %d; its stage is %d",
				d.text, r, c, l.RankOf(c), slow.dense[r][5])
		}
		seen[c] = true
		if was, known := units[slow.unit[r]]; known && was != c.DP {
			t.Fatalf("%s: rank %d talks with rank %d inside a micro-batch, and they are in units %d and %d",
				d.text, r, slow.unit[r], c.DP, was)
		}
		units[slow.unit[r]] = c.DP
	}
	if len(units) != l.DP {
		t.Fatalf("%s: %d units, the graph has %d parts", d.text, l.DP, len(units))
	}
}

func checkGroups(t *rapid.T, text string, l falcon.Layout, d falcon.Dimension, want [][]falcon.Rank) {
	if l.Mesh == (falcon.Mesh{}) && d != "tp" && d != "dp" && d != "pp" {
		return
	}
	got := l.Groups(d)
	if len(got) != len(want) {
		t.Fatalf("%s: %d groups along %s, want %v", text, len(got), d, want)
	}
	for i, g := range got {
		if !slices.Equal(g.Ranks, want[i]) {
			t.Fatalf("%s: group %v along %s, want %v", text, g.Ranks, d, want[i])
		}
		for _, r := range g.Ranks {
			if !slices.Equal(l.Peers(r, d), g.Ranks) {
				t.Fatalf("%s: rank %d's peers along %s are %v, want %v",
					text, r, d, l.Peers(r, d), g.Ranks)
			}
		}
	}
}

// A layout of replicas that are kept has the same ranks on the same devices, in the
// same roles.
func TestMeshKeepsReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawMesh(t)
		m, err := falcon.ParseMesh(d.text)
		if err != nil || m.Units() == 1 {
			return
		}
		l := falcon.LayoutOf(m)
		p := make(falcon.Placement, l.World())
		for r := range p {
			p[r] = falcon.NewDevice(falcon.Node(fmt.Sprint("n", r)), 0)
		}
		kept := []int{}
		for i := range l.DP {
			if rapid.Bool().Draw(t, "keep") || i == l.DP-1 && len(kept) == 0 {
				kept = append(kept, i)
			}
		}
		now, on := l.KeepReplicas(p, kept)
		if now.Validate() != nil ||
			now.World() != len(on) ||
			now.DP != len(kept) ||
			now.TP != l.TP ||
			now.PP != l.PP {
			t.Fatalf("%s without all but %v: %v of %d ranks on %d devices: %v",
				d.text, kept, now, now.World(), len(on), now.Validate())
		}
		for r, dev := range on {
			at := now.Coord(falcon.Rank(r))
			at.DP = kept[at.DP]
			if home := p[l.RankOf(at)]; dev != home {
				t.Fatalf("%s, kept %v: rank %d is on %s, not on %s", d.text, kept, r, dev, home)
			}
		}
	})
}

func TestMeshRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "is not of the form"},
		{"tp=2,", "is not of the form"},
		{"tp=02", "is not of the form"},
		{"tp=+2", "is not of the form"},
		{"tp=2\n", "is not of the form"},
		{"tp = 2", "is not of the form"},
		{"tp=99999999999999999999", "is not of the form"},
		{"tp=0", "must be from 1"},
		{"tp=-1", "must be from 1"},
		{"sp=2", "there is no dimension"},
		{"edp=2", "there is no dimension"},
		{"tp=2,tp=2", "given twice"},
		{"tp=262144,dp=262144,pp=262144", "more than"},
		{"dp=8,vpp=2", "at least 2 stages"},
		{"tp=2,ep=3,dp=8", "does not divide"},
		{"dp=8,ep=4,tp=2", "must come after"},
		{"tp=2,ep=4,pp=2,dp=8", "put pp last"},
		{strings.Repeat("tp=1,", 30), "at most 128"},
	} {
		_, err := falcon.ParseMesh(c.text)
		if !errors.Is(err, falcon.ErrMesh) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// What the notes of Megatron and torchtitan say of S2, by example.
func TestMeshUnits(t *testing.T) {
	for _, c := range []struct {
		text       string
		world      int
		tp, dp, pp int
	}{
		{"tp=2,dp=4,pp=2", 16, 2, 4, 2},
		{"dp=8", 8, 1, 8, 1},
		{"fsdp=8", 8, 8, 1, 1},
		{"fsdp=4,dp=2", 8, 4, 2, 1},
		{"tp=2,cp=2,dp=4,pp=2", 32, 4, 4, 2},
		{"tp=2,cp=1,ep=4,dp=8,pp=4", 64, 8, 2, 4},  // experts with tp: etp 2 × ep 4 ranks are one unit
		{"tp=2,etp=1,ep=4,dp=8,pp=4", 64, 4, 4, 4}, // etp 1: four ranks hold all experts
		{"tp=4,etp=1,ep=6,dp=6", 24, 12, 2, 1},     // tp groups of 4 and expert groups of 6 cross
		{"ep=8,dp=8", 8, 8, 1, 1},                  // nothing is left
		{"tp=2,ep=4,fsdp=4,dp=2", 16, 8, 2, 1},     // experts are inside the shard
		{"tp=2,pp=4,dp=2,vpp=2", 16, 2, 2, 4},
		{"tp=1", 1, 1, 1, 1},
	} {
		m, err := falcon.ParseMesh(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		l := falcon.LayoutOf(m)
		if l.World() != c.world ||
			l.TP != c.tp ||
			l.DP != c.dp ||
			l.PP != c.pp ||
			m.Units() != c.dp {
			t.Errorf("%s: %d ranks, tp %d, dp %d, pp %d", c.text, l.World(), l.TP, l.DP, l.PP)
		}
	}
}

// Journals of before have no mesh; those of now are read by what was before as the
// three numbers that work is planned on.
func TestLayoutJSON(t *testing.T) {
	plain, err := falcon.ParseMesh("tp=2,cp=1,dp=4,pp=2")
	if err != nil {
		t.Fatal(err)
	}
	if l := falcon.LayoutOf(plain); l != (falcon.Layout{TP: 2, DP: 4, PP: 2}) {
		t.Errorf("%+v has a mesh where none is needed", l)
	}
	m, err := falcon.ParseMesh("tp=2,cp=2,pp=2,dp=4")
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(falcon.LayoutOf(m))
	if want := `{"tp":4,"cp":2,"dp":4,"pp":2,"mesh":"tp=2,cp=2,pp=2,dp=4"}`; err != nil ||
		string(out) != want {
		t.Errorf("%s: %v", out, err)
	}
	var l falcon.Layout
	if err := json.Unmarshal(out, &l); err != nil || l != falcon.LayoutOf(m) || l.Validate() != nil {
		t.Errorf("%+v: %v", l, err)
	}
	l = falcon.Layout{}
	if err := json.Unmarshal([]byte(`{"tp":2,"cp":2,"dp":4,"pp":2}`), &l); err != nil || l.Validate() != nil {
		t.Errorf("an older one: %+v, %v", l, err)
	}
	l = falcon.LayoutOf(m)
	l.DP = 8
	if err := l.Validate(); !errors.Is(err, falcon.ErrLayout) {
		t.Errorf("a layout of other numbers than its mesh is taken: %v", err)
	}
}

// Whatever an adapter declares is refused, or is a layout whose ranks and places fit.
func FuzzMesh(f *testing.F) {
	for _, s := range []string{
		"tp=2,cp=2,ep=4,dp=8,pp=4", "dp=1", "tp=4,etp=1,ep=6,dp=6", "fsdp=4,dp=2,vpp=2,pp=2",
		"tp=2,\x00", "ep=2,cp=4,pp=2,dp=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := falcon.ParseMesh(text)
		if err != nil {
			if !errors.Is(err, falcon.ErrMesh) {
				t.Fatal(err)
			}
			return
		}
		l := falcon.LayoutOf(m)
		if l.Validate() != nil || l.World() != m.World() || l.World() < 1 {
			t.Fatalf("%q: %v of %d ranks: %v", text, l, l.World(), l.Validate())
		}
		if m.String() != "" {
			if again, err := falcon.ParseMesh(m.String()); err != nil || again != m {
				t.Fatalf("%q is written %q: %v", text, m, err)
			}
		}
		for r := range falcon.Rank(min(l.World(), 1024)) {
			c := l.Coord(r)
			if l.RankOf(c) != r || c.TP >= l.TP || c.DP >= l.DP || c.PP >= l.PP {
				t.Fatalf("%q: rank %d is at %v", text, r, l.Coord(r))
			}
		}
	})
}

// TestReplicasOfTheAdapter has the Python adapter number replicas as Falcon does: an order's counts
// are by replica. native/python/tests/test_mesh.py reads the same file.
func TestReplicasOfTheAdapter(t *testing.T) {
	b, err := os.ReadFile("native/python/tests/meshes.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Mesh    falcon.Mesh
		Replica []int
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		l := falcon.LayoutOf(c.Mesh)
		var got []int
		for r := range l.World() {
			got = append(got, l.Replica(falcon.Rank(r)))
		}
		if !slices.Equal(got, c.Replica) {
			t.Errorf("%v: replicas %v, the adapter has %v", c.Mesh, got, c.Replica)
		}
	}
}
