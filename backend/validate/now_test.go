package validate

import "testing"

// Nothing is told of a validation that is over.
func TestNowOfAnIdleMachine(t *testing.T) {
	if n := New(Config{}, func() uint64 { return 1 }).Now(); n.Step != "" || !n.Held.IsZero() || !n.Ends.IsZero() || len(n.Awaited) > 0 {
		t.Errorf("an idle machine is at %+v", n)
	}
}
