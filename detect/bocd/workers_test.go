package bocd

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// feedWorkers runs n rows of every worker, value(worker, row) each.
func feedWorkers(t *testing.T, workers, rows int, value func(w, i int) float64) []Flag {
	t.Helper()
	watch := NewWorkers(DefaultTrackerConfig())
	for i := range rows {
		for w := range workers {
			if err := watch.Observe(fmt.Sprint(w), value(w, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return watch.Flagged()
}

func TestWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	noise := func(ms float64) float64 { return ms * (1 + 0.01*rng.NormFloat64()) }
	for name, c := range map[string]struct {
		value func(w, i int) float64
		want  []string
	}{
		"steady but unlike": {func(w, _ int) float64 {
			return noise(100 + 5*float64(w))
		}, nil},
		"all together": {func(_, i int) float64 {
			if i >= 50 {
				return noise(150)
			}
			return noise(100)
		}, nil},
		"one transient": {func(w, i int) float64 {
			if w == 3 && i >= 40 && i < 70 {
				return noise(140)
			}
			return noise(100)
		}, []string{"3 40 70"}},
		"slow from the start": {func(w, _ int) float64 {
			if w == 0 {
				return noise(200)
			}
			return noise(100)
		}, []string{"0 0 -1"}},
	} {
		var got []string
		for _, f := range feedWorkers(t, 8, 120, c.value) {
			got = append(got, fmt.Sprintf("%s %d %d", f.Worker, f.Onset, f.Relief))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestWorkersOnRecords: Alibaba's job 2 is steady although its workers differ;
// in job 3 several become slow near the end.
func TestWorkersOnRecords(t *testing.T) {
	for file, want := range map[string][]string{
		"pai_job_2.csv": nil,
		"pai_job_3.csv": {"6", "7", "8", "9"},
	} {
		in, err := os.Open(filepath.Join(dataDir(t), "workers", file))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		rows, err := csv.NewReader(in).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		watch := NewWorkers(DefaultTrackerConfig())
		for _, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[4], 64)
			if err != nil {
				t.Fatal(err)
			}
			if err := watch.Observe(row[1], v); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, f := range watch.Flagged() {
			got = append(got, f.Worker)
			t.Logf("%s: %+v", file, f)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}
