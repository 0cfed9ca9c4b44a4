package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A barred node is no spare for a recovery, which says who has barred it; the bar holds over a
// restart of the engine, and once it is lifted the recovery goes on. The last spare is not barred
// by mistake.
func TestBarredSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[1])
		b.start()
		b.playTurns(15)
		ask := func(q *falconv1.RecoverRequest) error {
			_, err := b.engine.Recover(context.Background(), jon, q)
			return err
		}
		hour := int64(time.Hour)
		for _, c := range []struct {
			q    *falconv1.RecoverRequest
			want error
			text string
		}{
			{&falconv1.RecoverRequest{Verb: "bar", Node: "n2", ForNs: hour}, ErrInvalid, "say why"},
			{
				&falconv1.RecoverRequest{Verb: "bar", Node: "n2", Reason: "fan"},
				ErrInvalid,
				"a bar is for a time",
			},
			{
				&falconv1.RecoverRequest{Verb: "bar", Node: "n99", Reason: "fan", ForNs: hour},
				ErrNotFound,
				"no agent of a node",
			},
			{
				&falconv1.RecoverRequest{Verb: "bar", Node: "n2.g1", Reason: "fan", ForNs: hour},
				ErrRefused,
				"n2 is the last spare",
			},
			{
				&falconv1.RecoverRequest{Verb: "unbar", Node: "n2", Reason: "fan"},
				ErrStale,
				"n2 is not barred",
			},
			{
				&falconv1.RecoverRequest{
					Verb:   "bar",
					Node:   "n2.g1",
					Reason: "fan\x1b[2J loud",
					ForNs:  hour,
					Anyway: true,
				},
				nil,
				"",
			},
		} {
			err := ask(c.q)
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v: %v, want %q", c.q, err, c.text)
			}
		}
		b.playTurns(2)
		if s, err := b.engine.Latest(context.Background()); err != nil ||
			s.Reply.GetJob().GetNoSpare() != "n2" {
			t.Errorf("that the last spare is gone: %q, %v", s.Reply.GetJob().GetNoSpare(), err)
		}
		b.again()
		for range 200 {
			b.turn()
			b.each(b)
			list := b.recoveries()
			if len(list) > 0 &&
				strings.Contains(list[0].Reason, "n2.g1 is barred by jon until ") &&
				strings.Contains(list[0].Reason, "fan[2J loud") {
				break
			}
		}
		if list := b.recoveries(); len(list) != 1 ||
			list[0].State.Over() ||
			!strings.Contains(list[0].Reason, "n2.g1 is barred by jon") {
			t.Fatalf("recoveries %+v", list)
		}
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		bars := s.For(jon, nil).GetBars()
		if len(bars) != 1 ||
			bars[0].GetName() != "n2.g1" ||
			bars[0].GetBy() != "jon" ||
			bars[0].GetUntilUnixNs()-bars[0].GetSinceUnixNs() != hour {
			t.Errorf("%v", bars)
		}
		if err := ask(&falconv1.RecoverRequest{
			Verb:   "unbar",
			Node:   "n2.g1",
			Reason: "fan replaced",
		}); err != nil {
			t.Fatal(err)
		}
		b.playTurns(60)
		if v := b.recoveries()[0]; v.State != falcon.RecoveryResumed {
			t.Errorf("%s: %s", v.State, v.Reason)
		}
		b.onceEach()
	})
}
