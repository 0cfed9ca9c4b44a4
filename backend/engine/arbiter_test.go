package engine

import "testing"

// Each user of the job keeps out what would overlap with it, and nothing else.
func TestUsersOfTheJobKeepOthersOut(t *testing.T) {
	type may struct{ order, heavy, profile, test, idle, held, changing bool }
	all := may{
		order:   true,
		heavy:   true,
		profile: true,
		test:    true,
		idle:    true,
	}
	without := func(f func(*may)) may {
		m := all
		f(&m)
		return m
	}
	for _, c := range []struct {
		what string
		use  jobUse
		want may
	}{
		{"unused", jobUse{}, all},
		{"a recovery at work", jobUse{recovery: true, proposed: true}, may{changing: true}},
		{
			"a recovery that waits for a decision",
			jobUse{proposed: true},
			without(func(m *may) { m.idle = false }),
		},
		{
			"a recovery whose job epoch has not begun",
			jobUse{adopting: true},
			may{profile: true, changing: true},
		},
		{
			"a restart",
			jobUse{restart: true},
			may{order: true, heavy: true, profile: true, held: true, changing: true},
		},
		{"a test", jobUse{holding: true, testing: "VAL-0001 is in progress"}, may{held: true}},
		{
			"a test that is over and not durable",
			jobUse{testing: "VAL-0001 is in progress"},
			without(func(m *may) { m.test = false }),
		},
		{"ranks that a test may hold still", jobUse{mayHold: true}, without(func(m *may) { m.held = true })},
		{
			"an operator who waits for a test",
			jobUse{requested: true},
			without(func(m *may) { m.profile = false }),
		},
		{"an order", jobUse{orders: []uint64{7}}, without(func(m *may) { m.test = false })},
		{
			"a heavy order",
			jobUse{orders: []uint64{7}, heavy: true},
			may{order: true, heavy: true, held: true},
		},
		{"a profile", jobUse{profiling: true}, without(func(m *may) { m.heavy, m.test = false, false })},
	} {
		u := c.use
		u.jobEpoch = 3
		got := may{
			u.mayOrder(3, false),
			u.mayOrder(3, true),
			u.mayProfile(),
			u.testObstacle() == "",
			u.nothingDone(),
			u.mayStandStill(),
			u.changing(),
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		if u.mayOrder(2, false) {
			t.Errorf("%s: an order of another job epoch may go", c.what)
		}
	}
	if (jobUse{}).testForbidden() != "" || (jobUse{frozen: true}).testForbidden() == "" {
		t.Error("a frozen policy forbids tests, and nothing else does")
	}
}
