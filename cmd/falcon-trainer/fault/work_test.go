package fault

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

func TestOwnWork(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(
		filepath.Join(dir, workFile),
		[]byte("data 3 50 10 20\nlengths 1.5 15 0\nrubbish\ndata 3\n"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		iteration, rank int64
		late            time.Duration
		spread          float64
	}{
		{9, 3, 0, 0},
		{10, 3, 50 * time.Millisecond, 0},
		{10, 2, 0, 0},
		{19, 3, 50 * time.Millisecond, 1.5},
		{20, 3, 0, 1.5},
		{900, 0, 0, 1.5},
	} {
		late, spread := OwnWork(dir, tt.iteration, falcon.Rank(tt.rank))
		if late != tt.late || spread != tt.spread {
			t.Errorf("iteration %d, rank %d: %v and %g, want %v and %g",
				tt.iteration, tt.rank, late, spread, tt.late, tt.spread)
		}
	}
	if late, spread := OwnWork("", 10, 3); late != 0 || spread != 0 {
		t.Error("outside of a lab the job is as it is")
	}
}

func TestLengthsDiffer(t *testing.T) {
	sum, least, most := 0.0, 2.0, 0.0
	for n := range int64(1000) {
		x := Length(n, 2)
		sum += x
		least = min(least, x)
		most = max(most, x)
		if x != Length(n, 2) {
			t.Fatal("not the same twice")
		}
	}
	if least < 0 || most > 2 || sum < 900 || sum > 1100 {
		t.Errorf("from %g to %g, mean %g: want 0 to 2, mean 1", least, most, sum/1000)
	}
}
