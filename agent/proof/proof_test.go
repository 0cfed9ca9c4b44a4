package proof

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// mapped makes a file that this process has mapped, and its claim.
func mapped(t *testing.T, p *Prover) Claim {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	self, _ := p.running(os.Getpid())
	return Claim{
		PID:    os.Getpid(),
		Start:  self.Start,
		PIDNs:  p.pidNs,
		TimeNs: p.timeNs,
		Boot:   p.boot,
		Dev:    st.Dev,
		Ino:    st.Ino,
		UID:    uint32(os.Getuid()),
	}
}

func TestEachPartOfAClaimCounts(t *testing.T) {
	p := NewProver("/proc")
	for name, c := range map[string]struct {
		change func(c *Claim)
		want   falcon.UnprovenReason
		found  bool
	}{
		"whole": {func(*Claim) {}, falcon.UnprovenNone, true},
		"older hook": {func(c *Claim) {
			c.Start = 0
			c.PIDNs = 0
			c.TimeNs = 0
			c.Boot = ""
		}, falcon.UnprovenNone, true},
		"another start": {func(c *Claim) { c.Start++ }, falcon.UnprovenNone, false},
		"another clock": {func(c *Claim) {
			c.Start++
			c.TimeNs++
		}, falcon.UnprovenNone, true},
		"another number": {func(c *Claim) {
			c.PID = os.Getppid()
		}, falcon.UnprovenNone, false},
		"another file":   {func(c *Claim) { c.Ino++ }, falcon.UnprovenNone, false},
		"another's file": {func(c *Claim) { c.UID = 54321 }, falcon.UnprovenForged, false},
		"root's file":    {func(c *Claim) { c.UID = 0 }, falcon.UnprovenNone, true},
		"only a name": {func(c *Claim) {
			c.Start = 0
			c.PIDNs = 0
			c.Ino = 0
		}, falcon.UnprovenUnreadable, false},
		"other namespace": {func(c *Claim) { c.PIDNs++ }, falcon.UnprovenNone, false},
	} {
		claim := mapped(t, p)
		c.change(&claim)
		got, why := p.Check(os.Getpid(), claim)
		if why != c.want || (got.PID == os.Getpid()) != c.found {
			t.Errorf("%s: %+v, %v", name, got, why)
		}
	}
}

// The process of a claim that can't be seen from here is not gone.
func TestWhatCantBeSeenIsNotGone(t *testing.T) {
	p := NewProver("/proc")
	claim := mapped(t, p)
	claim.PIDNs++
	p.pidNs = 12 // as in a container
	if _, outcome, why := p.Find(claim); outcome != Unproven || why != falcon.UnprovenHidden {
		t.Errorf("%v, %v", outcome, why)
	}
	p.own = false // /proc is another namespace's: its numbers are not this agent's
	if _, outcome, why := p.Find(mapped(t, p)); outcome != Unproven || why != falcon.UnprovenHidden {
		t.Errorf("%v, %v", outcome, why)
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add("7f00-7f01 rw-s 00000000 00:1b 77 /dev/shm/x")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMapping(line); ok && m.area == "" {
			t.Errorf("%+v", m)
		}
	})
}
