package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// twin is an agent of node n1 on a machine of its own.
func twin(boot, addr string, living int32) *Session {
	s := NewSession(context.Background(), &falconv1.Hello{
		Agent:  "n1",
		Node:   "n1",
		Boot:   boot,
		Living: living,
	})
	s.Addr = addr
	return s
}

// Two agents with one name: one stays, whichever order they come in, and they are not told
// apart again and again.
func TestTwoAgentsWithOneName(t *testing.T) {
	const a, b = "10.0.0.1:1000", "10.0.0.2:1000"
	for what, c := range map[string]struct {
		first, second int32 // processes that they follow
		later         time.Duration
		stays         string
	}{
		"both idle":                   {0, 0, time.Second, a},
		"both follow processes":       {4, 4, time.Second, a},
		"the first follows":           {4, 0, time.Second, a},
		"the second follows":          {0, 4, time.Second, b},
		"the first was not heard":     {0, 0, twinHeard, b},
		"a busy first was not heard":  {4, 0, twinHeard, a},
		"nor for twice as long":       {4, 0, 2 * twinHeard, b},
		"another busy one comes late": {4, 4, twinHeard, a},
	} {
		r := NewRegistry()
		first := twin("1", a, c.first)
		second := twin("2", b, c.second)
		if _, _, err := r.Attach(first, at); err != nil {
			t.Fatal(err)
		}
		now := at.Add(c.later)
		_, _, err := r.Attach(second, now)
		stays := r.Node("n1").Session
		if stays.Addr != c.stays || (err == nil) != (c.stays == b) {
			t.Errorf("%s: %s stays, %v", what, stays.Addr, err)
		}
		gone := context.Cause(first.Context())
		if silent := c.later >= twinHeard && c.stays == b; silent {
			if r.Twins(now) != nil || !errors.Is(gone, ErrSuperseded) {
				t.Errorf("%s: %v, %v", what, r.Twins(now), gone)
			}
			continue
		}
		if err == nil {
			err = gone
		}
		says := err.Error()
		if !errors.Is(err, ErrTwin) ||
			!strings.Contains(says, a) ||
			!strings.Contains(says, b) ||
			!strings.Contains(says, "the one at "+c.stays+" stays") ||
			!strings.Contains(says, "n1") {
			t.Errorf("%s: %v", what, err)
		}
		if r.Twins(now) == nil || r.Twins(now.Add(twinShown)) != nil {
			t.Errorf("%s: shown %v, later %v", what, r.Twins(now), r.Twins(now.Add(twinShown)))
		}
		changes := r.Changes()
		again := twin("1", a, c.first)
		if c.stays == a {
			again = twin("2", b, c.second)
		}
		for range 20 {
			_, _, err := r.Attach(again, now.Add(time.Second))
			if !errors.Is(err, ErrTwin) || r.Changes() != changes {
				t.Fatalf("%s: it comes again: %v, %d changes", what, err, r.Changes()-changes)
			}
		}
	}
}

// An agent that was started again is no second one: its stream has ended, or it has the
// boot of the one before.
func TestAnAgentThatComesBackIsOne(t *testing.T) {
	r := NewRegistry()
	for _, boot := range []string{"1", "1", "2"} {
		s := twin(boot, "10.0.0.1:1", 4)
		if _, _, err := r.Attach(s, at); err != nil || r.Twins(at) != nil {
			t.Fatalf("boot %s: %v", boot, err)
		}
		if boot == "1" && r.Changes() == 2 {
			r.Detach(s)
		}
	}
}

// What the present stream has reported counts more than what it came with.
func TestAnAgentWhoseProcessesHaveEnded(t *testing.T) {
	r := NewRegistry()
	n, _, err := r.Attach(twin("1", "10.0.0.1:1", 4), at)
	if err != nil {
		t.Fatal(err)
	}
	n.Beat = &falconv1.Beat{}
	if _, _, err := r.Attach(twin("2", "10.0.0.2:1", 4), at); err != nil ||
		r.Node("n1").Session.Addr != "10.0.0.2:1" {
		t.Errorf("%v", err)
	}
}
