package bocd

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// dataDir is where the real records lie; tests that need them skip without.
func dataDir(t testing.TB) string {
	dir := os.Getenv("FALCON_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no records at %s; set FALCON_DATA to their folder", dir)
	}
	return dir
}

type golden struct {
	X      []float64 `json:"x"`
	Hazard float64   `json:"hazard"`
	MAP    []int     `json:"map_run_length"`
	PMAP   []float64 `json:"p_map"`
	PR0    []float64 `json:"p_r0"`
	PLe5   []float64 `json:"p_r_le5"`
}

func readGolden(t *testing.T, name string) golden {
	raw, err := os.ReadFile(filepath.Join(dataDir(t), "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func exactConfig(hazard float64) Config {
	return Config{RunLength: 1 / hazard, Prior: UnitPrior, Prune: 0}
}

func TestFilterEqualsGolden(t *testing.T) {
	for _, name := range []string{
		"nile_lam100.json", "bs_schedule_8xH100_lam250.json", "uf_n32_llama405b_lam250.json",
	} {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			f := New(exactConfig(g.Hazard))
			worst := 0.0
			for i, x := range g.X {
				s, err := f.Observe(x)
				if err != nil {
					t.Fatal(err)
				}
				r0 := f.Posterior(nil)[0]
				off := max(
					math.Abs(s.PMAP-g.PMAP[i]),
					math.Abs(s.PRecent-g.PLe5[i]),
					math.Abs(r0-g.PR0[i]),
				)
				worst = max(worst, off)
				if s.MAP != g.MAP[i] || off > 1e-9 {
					t.Fatalf("after x[%d]: MAP %d (want %d), off by %g", i, s.MAP, g.MAP[i], off)
				}
			}
			t.Logf("%d observations, largest difference %.1e", len(g.X), worst)
		})
	}
}

func TestFilterEqualsGoldenMatrix(t *testing.T) {
	g := readGolden(t, "nile_lam100.json")
	file, err := os.Open(filepath.Join(dataDir(t), "golden", "nile_lam100_R.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	f := New(exactConfig(g.Hazard))
	for col, x := range g.X {
		if _, err := f.Observe(x); err != nil {
			t.Fatal(err)
		}
		post := f.Posterior(nil)
		l1 := 0.0
		for r := range rows {
			want, err := strconv.ParseFloat(rows[r][col], 64)
			if err != nil {
				t.Fatal(err)
			}
			got := 0.0
			if r < len(post) {
				got = post[r]
			}
			l1 += math.Abs(got - want)
		}
		if l1 > 1e-9 {
			t.Fatalf("after x[%d]: L1 distance %g", col, l1)
		}
	}
}
