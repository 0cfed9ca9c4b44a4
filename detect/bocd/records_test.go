package bocd

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// record is one real series with its labels.
type record struct {
	File    string `json:"file"`
	Column  string `json:"column"`
	Points  int    `json:"points"`
	Kind    string `json:"kind"`
	Changes []int  `json:"changes_10pct"`
	Small   []int  `json:"changes_small"`

	ms []float64
}

func readRecords(t testing.TB) []record {
	dir := dataDir(t)
	raw, err := os.ReadFile(filepath.Join(dir, "iterations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []record
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i].ms = readColumn(t, filepath.Join(dir, out[i].File), out[i].Column)
		if len(out[i].ms) != out[i].Points {
			t.Fatalf("%s: %d points, want %d", out[i].File, len(out[i].ms), out[i].Points)
		}
	}
	return out
}

func readColumn(t testing.TB, path, column string) []float64 {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for i, h := range rows[0] {
		if h == column {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("%s: no column %s", path, column)
	}
	var out []float64
	for _, row := range rows[1:] {
		v, err := strconv.ParseFloat(row[at], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
