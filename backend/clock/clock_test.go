package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// machine is a machine whose clocks the test sets.
type machine struct {
	wall  time.Time
	since time.Duration
	boot  string
	torn  bool
}

func newMachine() *machine {
	return &machine{
		wall:  time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC),
		since: time.Hour,
		boot:  "a",
	}
}

func (m *machine) read() Reading {
	return Reading{
		Wall:   m.wall,
		Since:  m.since,
		BootID: m.boot,
		Torn:   m.torn,
	}
}

func (m *machine) pass(d time.Duration) {
	m.wall = m.wall.Add(d)
	m.since += d
}

func (m *machine) step(d time.Duration) {
	m.wall = m.wall.Add(d)
}

func (m *machine) reboot(off time.Duration) {
	m.pass(off)
	m.since = time.Minute
	m.boot += "b"
}

func TestAStepChangesNoTimeAndIsReportedOnce(t *testing.T) {
	for _, by := range []time.Duration{
		-time.Hour * 24 * 3650,
		-30 * time.Second,
		3 * time.Second,
		time.Hour * 24 * 3650,
	} {
		m := newMachine()
		c := New(m.read)
		began := c.Now()
		m.pass(time.Minute)
		if step, stepped := c.Look(); stepped {
			t.Errorf("a step of %v was reported before there was one", step.By)
		}
		m.step(by)
		if now := c.Now(); now.Sub(began) != time.Minute {
			t.Errorf("step by %v: %v have passed in a minute", by, now.Sub(began))
		}
		if step, stepped := c.Look(); !stepped || step.By != by || step.Offset != by || c.Offset() != by {
			t.Errorf("step by %v: reported %v as %+v", by, stepped, step)
		}
		m.pass(time.Second)
		if step, stepped := c.Look(); stepped {
			t.Errorf("step by %v: reported twice, as %+v", by, step)
		}
	}
}

func TestASlowCorrectionIsNoStep(t *testing.T) {
	m := newMachine()
	c := New(m.read)
	for range 10_000 {
		m.pass(100 * time.Millisecond)
		m.step(50 * time.Microsecond) // 500 ppm
		if step, stepped := c.Look(); stepped {
			t.Fatalf("reported as a step: %+v", step)
		}
	}
	if c.Offset() != 500*time.Millisecond {
		t.Errorf("offset %v after a correction of 500 ms", c.Offset())
	}
}

func TestATornReadingFindsNoStep(t *testing.T) {
	m := newMachine()
	c := New(m.read)
	// stopped between the two
	m.torn = true
	m.wall = m.wall.Add(time.Minute)
	if _, stepped := c.Look(); stepped {
		t.Error("a step was reported")
	}
}

func TestResume(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(m *machine)
		basis   Basis
		elapsed time.Duration
	}{
		{"same boot", func(m *machine) { m.pass(time.Minute) }, ByBoot, time.Minute},
		{"same boot, stepped back", func(m *machine) {
			m.pass(time.Minute)
			m.step(-time.Hour)
		}, ByBoot, time.Minute},
		{"same boot, stepped ten years ahead", func(m *machine) {
			m.pass(time.Minute)
			m.step(87600 * time.Hour)
		}, ByBoot, time.Minute},
		{"another boot", func(m *machine) { m.reboot(5 * time.Minute) }, ByWall, 5 * time.Minute},
		{"another boot, behind", func(m *machine) {
			m.reboot(time.Minute)
			m.step(-time.Hour)
		}, ByWallBack, 0},
		{"another boot, years ahead", func(m *machine) {
			m.reboot(time.Minute)
			m.step(87600 * time.Hour)
		}, ByWallMost, ElapsedMost},
		{"the boot is not known", func(m *machine) {
			m.pass(time.Minute)
			m.boot = ""
		}, ByWall, time.Minute},
		{"its clock is behind", func(m *machine) {
			m.pass(time.Minute)
			m.since = 0
		}, ByWall, time.Minute},
	} {
		m := newMachine()
		first := New(m.read)
		m.pass(time.Hour)
		mark, newest := first.Mark(), first.Now()
		tt.do(m)
		c, gap := Resume(m.read, &mark, newest.UnixNano())
		if gap.Basis != tt.basis ||
			gap.Elapsed != tt.elapsed ||
			c.Now().Sub(newest) != tt.elapsed {
			t.Errorf("%s: %+v, now %v after the newest record", tt.name, gap, c.Now().Sub(newest))
		}
		if got := c.Now().Add(c.Offset()); !got.Equal(m.wall) {
			t.Errorf("%s: shown as %v, the wall clock says %v", tt.name, got, m.wall)
		}
	}
}

func TestResumeWithoutAMark(t *testing.T) {
	m := newMachine()
	old := m.wall.Add(-time.Hour)
	if c, _ := Resume(m.read, nil, old.UnixNano()); !c.Now().Equal(m.wall) {
		t.Errorf("now is %v, the wall clock says %v", c.Now(), m.wall)
	}
	ahead := m.wall.Add(time.Hour)
	if c, _ := Resume(m.read, nil, ahead.UnixNano()); !c.Now().Equal(ahead) {
		t.Errorf("now is %v, before the newest record of %v", c.Now(), ahead)
	}
}

// Whatever the wall clock does, and however often the process starts again, time does
// not go back, and within a boot it is exact.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := newMachine()
		c := New(m.read)
		newest := c.Now()
		exact := c.Now()
		mark := c.Mark()
		for range 40 {
			switch rng.IntN(5) {
			case 0:
				m.step(time.Duration(rng.Int64N(int64(2e17)) - 1e17))
			case 1:
				c, _ = Resume(m.read, &mark, newest.UnixNano())
				mark = c.Mark()
			case 2:
				m.reboot(time.Duration(rng.Int64N(int64(time.Hour))))
				c, _ = Resume(m.read, &mark, newest.UnixNano())
				mark, exact = c.Mark(), c.Now()
			default:
				d := time.Duration(rng.Int64N(int64(time.Hour)))
				m.pass(d)
				exact = exact.Add(d)
			}
			c.Look()
			now := c.Now()
			if now.Before(newest) || !now.Equal(exact) {
				t.Fatalf("seed %d: now %v, before %v, exactly %v", seed, now, newest, exact)
			}
			newest = now
		}
	}
}

func TestSystem(t *testing.T) {
	r := System()
	if r.Since <= 0 || r.Wall.IsZero() || r.BootID == "" {
		t.Errorf("%+v", r)
	}
	if a, b := Now(), Now(); b.Before(a) || time.Since(a).Abs() > time.Hour {
		t.Errorf("%v, then %v", a, b)
	}
}
