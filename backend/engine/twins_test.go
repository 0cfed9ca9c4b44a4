package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/fleet"
)

// Two agents with one name are said to be two, with both addresses: once in the log of
// events, and on the first page as long as the second comes again.
func TestTwoAgentsWithOneNameAreTold(t *testing.T) {
	e, _ := listener(t)
	attach := func(boot, address string, at time.Time) *fleet.Session {
		h := hello("n3").GetHello()
		h.Boot = boot
		s := fleet.NewSession(context.Background(), h)
		s.Addr = address
		e.handleArrival(arrival{session: s, what: arriveAttach}, at)
		return s
	}
	first := attach("1", "10.0.0.3:1", t0)
	for i := range 20 {
		at := t0.Add(time.Duration(i+1) * 100 * time.Millisecond)
		second := attach("2", "10.0.0.9:"+strings.Repeat("1", i%4+1), at)
		if !errors.Is(context.Cause(second.Context()), fleet.ErrTwin) ||
			first.Context().Err() != nil {
			t.Fatalf("time %d: the second ended for %v, the first for %v",
				i, context.Cause(second.Context()), context.Cause(first.Context()))
		}
	}
	at := t0.Add(3 * time.Second)
	text := e.lines(t)
	if strings.Count(text, "two agents call themselves node n3") != 1 ||
		!strings.Contains(text, "10.0.0.3:1 stays") ||
		!strings.Contains(text, "10.0.0.9:1 is refused") ||
		strings.Count(text, "connected") != 1 {
		t.Errorf("lines:\n%s", text)
	}
	if alarm := e.views.jobAlarm(at); !strings.Contains(alarm, "two agents call themselves node n3") {
		t.Errorf("the first page: %q", alarm)
	}
	if alarm := e.views.jobAlarm(at.Add(time.Minute)); strings.Contains(alarm, "two agents") {
		t.Errorf("the first page once the second has gone: %q", alarm)
	}
}
