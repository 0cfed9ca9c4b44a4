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
	n := b.results[0].GetNewer()
	if n.GetEpoch() != 5 || n.GetEngine().GetHost() != "h" {
		t.Errorf("newer is %v", n)
	}
	b.refuse = &Older{Newest: 9, Reason: errors.New("generation 9 was launched here")}
	for range 2 {
		b.executor.Execute(command(5, 2, t0.Add(time.Second)), t0)
	}
	for _, r := range b.results[1:] {
		if r.GetNewer().GetGeneration() != 9 ||
			r.GetNewer().GetEpoch() != 5 ||
			r.GetDetail() != "generation 9 was launched here" {
			t.Errorf("%v", r)
		}
	}
}

// An engine of an epoch before is not followed, and a higher epoch forgets who was.
func TestWhoIsFollowed(t *testing.T) {
	b := newBench()
	a := &falconv1.EngineName{Id: "a"}
	other := &falconv1.EngineName{Id: "b"}
	b.executor.Follow(5, a, 0)
	b.executor.Follow(4, other, 0)
	if got := b.executor.Standing(); got.GetEpoch() != 5 || got.GetEngine().GetId() != "a" {
		t.Errorf("%v", got)
	}
	b.executor.Execute(command(6, 7, t0.Add(time.Second)), t0)
	if got := b.executor.Standing(); got.GetEpoch() != 6 || got.GetCommand() != 7 || got.GetEngine() != nil {
		t.Errorf("%v", got)
	}
	b.executor.Follow(6, other, 0)
	next := newBench()
	next.executor.Resume(b.executor.Standing())
	if got := next.executor.Standing(); got.GetEpoch() != 6 ||
		got.GetCommand() != 7 ||
		got.GetEngine().GetId() != "b" {
		t.Errorf("the next agent knows %v", got)
	}
	next.executor.Resume(&falconv1.Standing{Epoch: 5, Command: 9, Engine: a})
	next.executor.Resume(nil)
	if got := next.executor.Standing(); got.GetEpoch() != 6 || got.GetCommand() != 7 {
		t.Errorf("an earlier epoch is taken over: %v", got)
	}
}

// What an engine has ordered is remembered until another one is obeyed, however many came between.
func TestTheJournalThatWasObeyed(t *testing.T) {
	b := newBench()
	name := func(id string) *falconv1.EngineName { return &falconv1.EngineName{Id: id} }
	ordered := command(5, 1, t0.Add(time.Second))
	ordered.Record = 70
	b.executor.Follow(5, name("a"), 60)
	b.executor.Execute(ordered, t0)
	for _, id := range []string{"b", "c"} {
		b.executor.Follow(5, name(id), 40)
		got := b.executor.Standing()
		if got.GetEngine().GetId() != id ||
			got.GetRecord() != 40 ||
			got.GetBefore().GetEngine().GetId() != "a" ||
			got.GetBefore().GetRecord() != 70 {
			t.Errorf("following %s: %v", id, got)
		}
	}
	obeyed := command(5, 2, t0.Add(time.Second))
	obeyed.Record = 41
	b.executor.Execute(obeyed, t0)
	if got := b.executor.Standing(); got.GetRecord() != 41 || got.GetBefore() != nil {
		t.Errorf("%v", got)
	}
}
