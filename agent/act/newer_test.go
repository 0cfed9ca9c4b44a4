package act

import (
	"errors"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A refusal as older says what is newer, as a number, and a repeat is answered alike.
func TestRefusalsSayWhatIsNewer(t *testing.T) {
	b := newBench()
	b.executor.Follow(5, &falconv1.EngineName{Id: "a", Host: "h", Start: 2}, 0)
	b.executor.Execute(command(4, 1, t0.Add(time.Second)), t0)
	if n := b.results[0].GetNewer(); n.GetEpoch() != 5 || n.GetEngine().GetHost() != "h" {
		t.Errorf("newer is %v", n)
	}
	b.refuse = &Older{Newest: 9, Reason: errors.New("generation 9 was launched here")}
	for range 2 {
		b.executor.Execute(command(5, 2, t0.Add(time.Second)), t0)
	}
	for _, r := range b.results[1:] {
		if r.GetNewer().GetGeneration() != 9 || r.GetNewer().GetEpoch() != 5 || r.GetDetail() != "generation 9 was launched here" {
			t.Errorf("%v", r)
		}
	}
}

// An engine of an epoch before is not followed, and a higher epoch forgets who was.
func TestWhoIsFollowed(t *testing.T) {
	b := newBench()
	a, other := &falconv1.EngineName{Id: "a"}, &falconv1.EngineName{Id: "b"}
	b.executor.Follow(5, a, 0)
	b.executor.Follow(4, other, 0)
	if got := b.executor.Standing(); got.GetEpoch() != 5 || got.GetEngine().GetId() != "a" {
		t.Errorf("%v", got)
	}
	b.executor.Execute(command(6, 7, t0.Add(time.Second)), t0)
	if got := b.executor.Standing(); got.GetEpoch() != 6 || got.GetCommand() != 7 || got.GetEngine() != nil {
		t.Errorf("%v", got)
	}
	next := newBench()
	b.executor.Follow(6, other, 0)
	next.executor.Import(b.executor.Export(t0), t0, anything)
	if got := next.executor.Standing(); got.GetEpoch() != 6 || got.GetCommand() != 7 || got.GetEngine().GetId() != "b" {
		t.Errorf("the next agent knows %v", got)
	}
}
