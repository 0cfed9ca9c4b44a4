package engine

import (
	"context"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestCNPRateBetweenTwoLooks(t *testing.T) {
	look := func(s float64, sent, handled uint64, err string) falcon.NICReading {
		return falcon.NICReading{
			AtNs:       int64(s * 1e9),
			CNPSent:    sent,
			CNPHandled: handled,
			Err:        err,
		}
	}
	for name, x := range map[string]struct {
		old, now falcon.NICReading
		want     float64
	}{
		"grows":           {look(1, 100, 10, ""), look(3, 200, 30, ""), 60},
		"still":           {look(1, 5, 5, ""), look(2, 5, 5, ""), 0},
		"began from zero": {look(1, 100, 0, ""), look(2, 7, 0, ""), cnpUnmeasured},
		"backwards":       {look(2, 1, 0, ""), look(1, 9, 0, ""), cnpUnmeasured},
		"failed before":   {look(1, 0, 0, "gone"), look(2, 9, 0, ""), cnpUnmeasured},
		"fails now":       {look(1, 0, 0, ""), look(2, 0, 0, "gone"), cnpUnmeasured},
		"lacks a counter": {
			look(1, 4, 0, "not offered: symbol_error"),
			look(2, 6, 0, "not offered: symbol_error"),
			2,
		},
	} {
		if got := cnpAfter(x.old, x.now); got != x.want {
			t.Errorf("%s: %g a second, want %g", name, got, x.want)
		}
	}
}

// A rank shows the rate of the port that its own traffic leaves by, and none
// where that port was looked at once or too long ago.
func TestRanksShowTheirPortsRate(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.until(3)
		report := func(at int64, cnp uint64) {
			b.job.agents[1].send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{
					Nics: []*falconv1.Nic{{
						Name:       "n1.nic0",
						AtUnixNs:   at * 1e9,
						CnpHandled: cnp,
						Active:     true,
					}},
				}},
			})
			b.turn()
		}
		rates := func() (some, none int) {
			time.Sleep(time.Second)
			s, err := b.engine.Latest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range s.Ranks.Views() {
				switch r.CnpPerS {
				case 250:
					some++
				case cnpUnmeasured:
					none++
				}
			}
			return some, none
		}
		report(1, 1000)
		if some, none := rates(); some != 0 || none != fakeRanks {
			t.Errorf("after one look %d ranks have a rate, %d none", some, none)
		}
		report(3, 1500)
		report(3, 1500) // the same look again
		if some, none := rates(); some != 2 || none != fakeRanks-2 {
			t.Errorf("after two looks %d ranks have a rate, %d none", some, none)
		}
		time.Sleep(2 * cnpFresh)
		if some, _ := rates(); some != 0 {
			t.Errorf("%d ranks have a rate of long ago", some)
		}
	})
}
