package validate

import "testing"

// Now is empty once a validation is over.
func TestNowOfAnIdleMachine(t *testing.T) {
	n := New(Config{}, func() uint64 { return 1 }).Now()
	if n.Step != "" || !n.Held.IsZero() || !n.Ends.IsZero() || len(n.Awaited) > 0 {
		t.Errorf("an idle machine is at %+v", n)
	}
}
