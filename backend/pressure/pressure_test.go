package pressure

import (
	"errors"
	"runtime"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestLevelsRiseAndFallApart(t *testing.T) {
	at := Plenty
	for _, c := range []struct {
		share float64
		want  Level
	}{
		{0.5, Plenty},
		{0.899, Plenty},
		{0.9, NoWatches},
		{0.91, NoWatches},
		{0.99, NoSamples},
		{0.94, NoSamples},
		{0.92, NoTelemetry},
		{0.86, NoWatches},
		{0.849, Plenty},
		{0.93, NoViewers},
		{0.88, NoViewers},
		{2, NoSamples},
		{0, Plenty},
	} {
		if at = levelAt(at, c.share); at != c.want {
			t.Fatalf("at %.3f: %v, want %v", c.share, at, c.want)
		}
	}
}

func TestGaugeTellsEachChangeOnce(t *testing.T) {
	used := int64(10)
	var announced []Level
	g := &Gauge{
		limit:   100,
		used:    func() int64 { return used },
		changed: func(_, now Level, _ int64) { announced = append(announced, now) },
	}
	for _, used = range []int64{10, 95, 95, 96, 50, 50} {
		g.look()
	}
	if len(announced) != 3 ||
		announced[0] != NoProfiles ||
		announced[1] != NoTelemetry ||
		announced[2] != Plenty ||
		g.Level() != Plenty {
		t.Errorf("announced %v", announced)
	}
}

func TestWhatTheCollectorCanTakeIsNoPressure(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := inUse()
	var keep []byte
	for range 64 {
		keep = make([]byte, 1<<20)
	}
	if grown := inUse() - before; grown > 32<<20 {
		t.Errorf("%d MiB of garbage count as in use", grown>>20)
	}
	held := make([]byte, 64<<20)
	runtime.GC()
	if grown := inUse() - before; grown < 60<<20 {
		t.Errorf("of 64 MiB in use %d MiB count", grown>>20)
	}
	runtime.KeepAlive(keep)
	runtime.KeepAlive(held)
}

func TestLimits(t *testing.T) {
	for s, want := range map[string]int64{
		"":           0,
		"none":       0,
		"512MiB":     512 << 20,
		"2GiB":       2 << 30,
		"100000000":  100_000_000,
		"100000000B": 100_000_000,
	} {
		if got, err := ParseLimit(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"1MiB", "-5GiB", "many", "0", "9999999999TiB", "1.5GiB"} {
		if got, err := ParseLimit(s); !errors.Is(err, ErrLimit) {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

func TestEnvironmentWins(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	t.Setenv("GOMEMLIMIT", "")
	if got, err := Choose("512MiB"); err != nil || got != 512<<20 || debug.SetMemoryLimit(-1) != 512<<20 {
		t.Errorf("configured: %d, %v", got, err)
	}
	t.Setenv("GOMEMLIMIT", "1GiB") // the runtime reads it at the start; here it was set above
	if got, err := Choose("2GiB"); err != nil || got != 512<<20 {
		t.Errorf("the environment: %d, %v", got, err)
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"2GiB", "none", "", "1TiB", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseLimit(s); err == nil && n != 0 && n < leastLimit {
			t.Errorf("%q gives %d", s, n)
		}
	})
}
