package engine

import (
	"context"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
)

func (b *bench) incidents() *falconv1.IncidentsReply {
	r, err := b.engine.Incidents(context.Background(), "")
	if err != nil {
		return &falconv1.IncidentsReply{}
	}
	return r
}

func (b *bench) action() *falconv1.Action {
	r := b.incidents()
	if len(r.GetLadders()) == 0 || len(r.GetLadders()[0].GetActions()) == 0 {
		return nil
	}
	actions := r.GetLadders()[0].GetActions()
	return actions[len(actions)-1]
}

// onceEach fails for a command that an agent executed twice.
func (b *bench) onceEach() {
	b.t.Helper()
	for _, a := range b.job.agents {
		for k, n := range a.executed {
			if n != 1 {
				b.t.Errorf("agent %s executed command %v %d times", a.node, k, n)
			}
		}
	}
}

// records reads the closed journal.
func (b *bench) records() map[journal.Kind][]journal.Record {
	b.t.Helper()
	j, err := journal.Open(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer j.Close()
	out := map[journal.Kind][]journal.Record{}
	if err := j.Each(func(r journal.Record) error {
		out[r.Kind] = append(out[r.Kind], r)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func kinds(m map[journal.Kind][]journal.Record) []journal.Kind {
	return slices.Sorted(maps.Keys(m))
}

// turn lets one iteration pass and everything that follows from it.
func (b *bench) turn() {
	b.job.step()
	b.job.beats()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	for range 3 {
		for _, a := range b.job.agents {
			a.poll(b.job)
		}
		synctest.Wait()
	}
}

func (b *bench) dead() bool {
	select {
	case <-b.engine.Done():
		return true
	default:
		return false
	}
}
