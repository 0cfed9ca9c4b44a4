package evaltest

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// record is one real series with the changes that its job's schedule has.
type record struct {
	File    string `json:"file"`
	Column  string `json:"column"`
	Changes []int  `json:"changes_10pct"`
	Small   []int  `json:"changes_small"`
}

// realRecords judges all methods on the real series: an undisturbed one has no
// report, a labelled change is found within 5 points. Series of a log's own
// times are taken as differences, with the pauses between iterations in them.
func realRecords(t *testing.T) string {
	dir := os.Getenv("FALCON_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "iterations.json"))
	if err != nil {
		t.Logf("no real records at %s: set FALCON_DATA to their folder", dir)
		return ""
	}
	var all []record
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	var found, stray, quiet [methods]int
	points, labels, undisturbed := 0, 0, 0
	for _, r := range all {
		ms := durations(t, filepath.Join(dir, r.File), r.Column)
		points, labels = points+len(ms), labels+len(r.Changes)
		if len(r.Changes)+len(r.Small) == 0 {
			undisturbed++
		}
		for i, reports := range Reports(ms) {
			found[i] += hits(r.Changes, reports)
			n := strays(append(r.Changes[:len(r.Changes):len(r.Changes)], r.Small...), reports)
			if stray[i] += n; n == 0 && len(r.Changes)+len(r.Small) == 0 {
				quiet[i]++
			}
		}
	}
	if 10_000*stray[Ours] > 2*points { // onsets and reliefs: 1 of each
		t.Errorf("real records: %d reports in %d points where nothing is", stray[Ours], points)
	}
	if 100*found[Ours] < 95*labels {
		t.Errorf("real records: %d of %d changes found", found[Ours], labels)
	}
	return recordsTable(len(all), points, labels, undisturbed, found, stray, quiet)
}

func recordsTable(series, points, labels, undisturbed int, found, stray, quiet [methods]int) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"### Real records: %d series, %d iterations\n\n| method | labelled changes found within 5 | other reports per 10,000 | undisturbed series without a report |\n|---|---|---|---|\n",
		series, points)
	for i, name := range Names() {
		fmt.Fprintf(&b, "| %s | %d of %d | %.2f | %d of %d |\n",
			name, found[i], labels, 1e4*float64(stray[i])/float64(points), quiet[i], undisturbed)
	}
	return b.String()
}

const within = 5

func close5(a, b int) bool {
	return max(a-b, b-a) <= within
}

func hits(labels []int, reports []Report) int {
	n := 0
	for _, l := range labels {
		for _, r := range reports {
			if close5(r.At, l) {
				n++
				break
			}
		}
	}
	return n
}

func strays(labels []int, reports []Report) int {
	n := 0
	for _, r := range reports {
		meant := false
		for _, l := range labels {
			meant = meant || close5(r.At, l)
		}
		if !meant {
			n++
		}
	}
	return n
}

// durations reads a column; times since the start become differences.
func durations(t *testing.T, path, column string) []float64 {
	t.Helper()
	return durationsOf(t, path, column, column != "ms")
}

func durationsOf(t *testing.T, path, column string, sinceStart bool) []float64 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for i, name := range rows[0] {
		if name == column {
			at = i
		}
	}
	var out []float64
	for _, row := range rows[1:] {
		v, err := strconv.ParseFloat(row[at], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if !sinceStart {
		return out
	}
	for i := len(out) - 1; i > 0; i-- {
		out[i] -= out[i-1]
	}
	return out[1:]
}
